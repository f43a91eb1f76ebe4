"""Moves a log to another data directory while it is in use."""
