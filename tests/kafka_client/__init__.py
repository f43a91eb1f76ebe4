"""The Kafka client of event loops."""
