"""Rooms over HTTP: requests, streams, sockets and their commands."""
