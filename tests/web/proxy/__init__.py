"""What scripts for the REST Proxy (v2) ask."""
