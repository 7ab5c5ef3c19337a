"""One detector per key: many small detectors in shared tables, in bounded memory."""
