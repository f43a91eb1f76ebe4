"""A data directory: partition folders, the lock, and the files that record how the last run ended."""
