"""Tenants on the HTTP port: clients with a scope use plain names and see nothing of others."""
