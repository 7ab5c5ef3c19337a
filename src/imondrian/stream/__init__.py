"""The stream detector, its state, and time series."""
