"""Tables in files and pipes: read in batches, turned into points, written whole."""
