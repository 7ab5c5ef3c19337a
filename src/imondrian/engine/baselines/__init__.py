"""Kernels of the other methods with which the experiments compare."""
