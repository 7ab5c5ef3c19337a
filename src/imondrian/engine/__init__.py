"""Mondrian trees: compiled functions on arrays. All compiled functions of the package are in this folder."""
