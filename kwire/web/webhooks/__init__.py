"""Webhook consumers over HTTP: who is called when events are published, how that goes, and what became of failures."""
