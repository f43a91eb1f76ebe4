"""Event files: a copy of each event as a JSON file, to be read with ordinary tools. The log remains authoritative."""
