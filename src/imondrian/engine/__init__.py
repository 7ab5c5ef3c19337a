"""The Mondrian trees: kernels over arrays, one verb of the paper per file."""
