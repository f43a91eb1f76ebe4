"""Locks for writers and commits of tables."""
