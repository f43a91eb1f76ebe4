"""Partitioned topics over HTTP: create, change and delete topics, publish and consume events, read statistics."""
