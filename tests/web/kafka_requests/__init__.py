"""Kafka's administrative requests as JSON."""
