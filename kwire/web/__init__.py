"""The HTTP side: one file per resource, each (services, request) -> response; `routes.py` holds the one list of them."""
