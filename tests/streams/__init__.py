"""Logs as rooms, subscriptions, webhooks and REST use them, and commands to their owners."""
