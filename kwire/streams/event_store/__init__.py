"""The event store: topics with schemas, atomic commits across several topics, and one global order of all events."""
