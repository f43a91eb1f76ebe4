"""The Kafka port: listeners, connections, and the limits on the memory of requests."""
