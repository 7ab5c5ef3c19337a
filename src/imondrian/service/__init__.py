"""Detectors over HTTP that survive a power cut, with a live page."""
