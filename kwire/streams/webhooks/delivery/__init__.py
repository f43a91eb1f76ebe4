"""Delivery of events to URLs: scheduling, limits, request bodies, signatures and retries."""
