"""The event store over HTTP: create topics with schemas, and publish, read and subscribe to events."""
