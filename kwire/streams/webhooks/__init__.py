"""Webhooks: consumers that deliver each event of their topics to a URL. The HTTP client is injected (`Send`)."""
