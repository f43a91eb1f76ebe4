"""The commands for access: `user`, `key` and `acl`, on a running or a stopped server."""
