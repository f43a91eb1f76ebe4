"""Consumer groups over HTTP: members that poll or listen, and what operators ask about any group."""
