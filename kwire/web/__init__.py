"""The HTTP port. Each resource has a module with its handlers. A handler takes (services, request) and returns a
response. `routes.py` lists every route."""
