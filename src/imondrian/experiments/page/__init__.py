"""The page `reproduction.md`: the paper's tables and figures with ours beside them, made from the records alone."""
