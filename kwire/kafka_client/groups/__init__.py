"""Groups of a cluster: their coordinators, committed offsets, descriptions, and members of the classic protocol."""
