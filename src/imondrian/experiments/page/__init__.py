"""The page `reproduction.md`: our results beside the paper's, generated from the stored records only."""
