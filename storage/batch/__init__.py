"""Record batches as bytes: format, building, reading, compression and checks."""
