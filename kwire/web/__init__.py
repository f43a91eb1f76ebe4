"""The HTTP side: one file per resource, each (services, request) -> response; `routes.py` is the one list."""
