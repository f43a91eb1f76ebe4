"""The fifth family of works: the event store. Publishing with and without schemas, webhooks, files, subscribe-all.

Produce to its topics stands beside Apache Kafka. The load is a program written in Go, `load/`. Run it with
`scripts/bench events`.
"""

FAMILY = "events"
