"""A Kafka client for event loops: connections with TLS and SASL, and metadata that follows leaders.

The wire layer (`kwire/wire`) encodes and decodes; record batches stay opaque. The command line has a client that
blocks, and shares the frames and the login.
"""
