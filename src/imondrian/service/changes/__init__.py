"""Requests that change a detector: rows and settings as posted, journal entries, saved replies."""
