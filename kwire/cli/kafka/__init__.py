"""A small synchronous Kafka client for the command line: metadata, producer, fetcher and group membership."""
