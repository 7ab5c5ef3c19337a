"""The Mondrian trees: compiled functions over arrays. Every compiled function of the package is in this folder."""
