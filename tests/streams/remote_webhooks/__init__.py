"""Webhooks on a cluster."""
