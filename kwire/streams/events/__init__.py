"""Events: Kafka records in the form that rooms and the HTTP API show. Encodes, publishes, reads and decodes events."""
