"""Kernels of the systems that the experiments compare with."""
