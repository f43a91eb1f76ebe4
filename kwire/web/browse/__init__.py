"""Browsing the records of a topic: filters that run on the server, scans of partitions, and the routes."""
