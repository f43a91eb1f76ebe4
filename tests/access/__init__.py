"""Principals, users, ACLs, SASL, certificates and TLS contexts."""
