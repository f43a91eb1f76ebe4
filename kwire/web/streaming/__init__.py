"""Streams over HTTP: WebSockets, Server-Sent Events and NDJSON."""
