"""The HTTP port of a bridge: the routes that need no log of this process, and the metrics of its cluster."""
