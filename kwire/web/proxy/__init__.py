"""The REST Proxy API (version 2), for existing scripts. Some paths belong to this API and to kwire's own API. On these
paths, the media type of a request selects the API."""
