"""Fetch: read record batches from partitions, with fetch sessions and long polling."""

from kwire.handlers.fetch.handler import handle

__all__ = ["handle"]
