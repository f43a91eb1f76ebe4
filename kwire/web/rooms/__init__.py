"""Rooms over HTTP: REST routes, commands, and subscriptions by WebSocket, Server-Sent Events or NDJSON."""
