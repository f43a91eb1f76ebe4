"""Readers of a stream: subscription to acknowledged entries, and quorum reads."""
