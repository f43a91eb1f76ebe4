"""The network layer: the Kafka port, the HTTP port, outgoing webhooks, loop metrics. No other package uses sockets."""
