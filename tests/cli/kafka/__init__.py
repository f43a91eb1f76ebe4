"""Tests of the Kafka client of the command line, without a server."""
