"""Principals, certificates and TLS contexts."""
