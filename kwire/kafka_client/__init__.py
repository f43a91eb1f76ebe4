"""A Kafka client for event loops: connections with TLS and SASL, metadata that follows leaders, requests to a cluster.

The wire layer (`kwire/wire`) encodes and decodes; record batches stay opaque. The command line, which blocks, shares the
frames, the login and the TLS contexts.
"""
