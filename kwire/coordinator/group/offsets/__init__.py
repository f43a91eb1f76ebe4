"""Committed offsets of groups, and pending offsets of open transactions."""
