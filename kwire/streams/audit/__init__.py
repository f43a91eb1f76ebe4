"""The audit log of the server: the topic `kwire-audit`, whose records form a hash chain."""
