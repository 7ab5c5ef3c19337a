"""The experiments of the paper: detectors side by side on its data sets."""
