"""The HTTP port: its listener, its connections, and connections that became streams."""
