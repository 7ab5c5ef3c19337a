"""Tables in files and pipes: read in batches, converted to points, written atomically."""
