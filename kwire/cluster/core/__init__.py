"""The replication protocol of the Stream Engine, without sockets, files, clocks or randomness.

Every state machine has `step(message, now)` and `tick(now)`. They return what to make durable, what to send and what is
acknowledged; the caller does the I/O. docs/stream-engine.md explains the protocol.
"""
