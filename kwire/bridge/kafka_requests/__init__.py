"""Kafka's administrative requests on a bridge, with the rights of the bridge's own users.

The bridge answers requests about ACLs, users and quotas itself: these are its own.
"""
