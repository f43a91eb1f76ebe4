"""The HTTP port of a bridge."""
