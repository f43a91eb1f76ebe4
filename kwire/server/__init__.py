"""The only package with sockets: listeners, the Kafka protocol on them, the HTTP port, and the watch on the loop."""
