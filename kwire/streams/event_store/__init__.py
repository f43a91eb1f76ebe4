"""The event store: topics with schemas, events committed over several of them at once, and one order of everything."""
