"""/admin: the state of the node, and backups."""
