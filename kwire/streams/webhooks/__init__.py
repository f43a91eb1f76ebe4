"""Webhook consumers: cursors on the log that deliver each event to a URL; who has the sockets is given in."""
