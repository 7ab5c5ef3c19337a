"""An HTTP service for detectors that survives power cuts, with a live page."""
