"""Webhooks: what they say, how they are signed, and the machine that delivers them."""
