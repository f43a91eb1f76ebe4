"""SASL: the mechanisms, and the login of one connection of a Kafka client, without I/O."""
