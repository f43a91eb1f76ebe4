"""Logs as rooms, subscriptions, event readers, webhooks and REST use them, wherever the log is.

`log` is the interface, `local` the implementation over a partition of this process, `commands` what is asked of the
owner of a topic, a room or a webhook and is not an operation on a log.
"""
