"""Topics of a cluster."""
