"""The server's log: formats, limits, and what it says at start and stop."""
