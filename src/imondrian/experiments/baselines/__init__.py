"""The baselines of the paper, one module each."""
