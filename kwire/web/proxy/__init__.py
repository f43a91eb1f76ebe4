"""The REST Proxy API (version 2), for existing scripts. It has some paths in common with kwire's own API. On these
paths, the media type of a request selects the API."""
