"""Client quotas of users, client ids and addresses, without sockets and clocks."""
