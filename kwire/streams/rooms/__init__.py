"""Rooms: single-partition topics that are created on first use, keep a bounded history and are deleted when unused."""
