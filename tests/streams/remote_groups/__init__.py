"""Groups of a cluster with HTTP members."""
