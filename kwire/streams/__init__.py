"""Event streams over logs: rooms, subscriptions, events, the event store and webhooks. `log` is the interface of a log,
`local` implements it over a partition of this process, and `commands` defines requests to the owner of a topic, room or
webhook that are not operations on a log."""
