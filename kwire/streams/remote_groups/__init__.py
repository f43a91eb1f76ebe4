"""Groups with HTTP members on the coordinator of a cluster, and reports on the groups of a cluster."""
