"""Partitioned topics over HTTP."""
