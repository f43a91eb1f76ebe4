"""The Stream Engine: streams that are replicated over several machines.

`core` is the protocol without I/O, `master` decides about leaders, epochs and copy sets. docs/stream-engine.md explains
the protocol.
"""
