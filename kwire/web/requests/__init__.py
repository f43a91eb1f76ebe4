"""Requests of the HTTP port: the middleware, the origin policy, and bodies with limits on size, memory and rate."""
