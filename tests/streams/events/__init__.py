"""Records as events: into a partition and out of it."""
