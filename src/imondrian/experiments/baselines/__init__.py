"""The detectors that the paper compares with, each in its own file."""
