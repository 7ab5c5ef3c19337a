"""The experiments of the paper: compare detectors on its data sets."""
