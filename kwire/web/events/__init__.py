"""The event store over HTTP: topics with schemas, events in, events out."""
