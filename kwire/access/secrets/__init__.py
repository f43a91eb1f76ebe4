"""Encryption of the secrets that the server stores, and the keys of the node in a file."""
