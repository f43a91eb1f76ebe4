"""What scripts written for the REST Proxy (version 2) expect, told apart from our own paths by media type."""
