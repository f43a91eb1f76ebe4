"""One file per API, with the stem of its handler."""
