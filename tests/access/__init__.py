"""Principals, ACLs and the authorizer."""
