"""The HTTP port, asked the way a monitor asks it."""
