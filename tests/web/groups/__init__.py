"""Consumer groups over HTTP, and what is told about all groups."""
