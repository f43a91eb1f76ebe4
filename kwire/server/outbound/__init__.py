"""Outgoing connections: webhook deliveries, and the rules for the addresses to which they may connect."""
