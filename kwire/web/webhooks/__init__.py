"""Webhooks over HTTP: create and change webhooks, list their deliveries, and send events again."""
