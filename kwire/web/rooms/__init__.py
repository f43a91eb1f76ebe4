"""The doors of rooms: REST for people, commands, WebSocket, Server-Sent Events, NDJSON."""
