"""The declarations of Kafka's APIs: one module per API with its request and its response."""
