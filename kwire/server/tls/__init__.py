"""TLS on the sockets of the Kafka port and the HTTP port."""
