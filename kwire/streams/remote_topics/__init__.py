"""Topics of a cluster: the commands of HTTP clients about them."""
