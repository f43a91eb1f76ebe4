"""The server: sockets, bounds, order, the end of a connection and of the node."""
