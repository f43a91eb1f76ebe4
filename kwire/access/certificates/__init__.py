"""Certificates and keys: their files, the fields of a certificate that kwire reads, and cipher suites."""
