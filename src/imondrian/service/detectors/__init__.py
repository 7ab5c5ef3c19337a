"""Running detectors: created, recovered, changed by one thread each, and found by name."""
