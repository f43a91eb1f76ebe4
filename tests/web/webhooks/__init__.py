"""The HTTP doors of webhooks."""
