"""The fifth family of works: the event store. Publishing with and without schemas, webhooks, files, subscribe-all.

Only Produce to event topics is compared with Apache Kafka. A Go program (`load/`) generates the load. Run the family
with `scripts/bench events`.
"""

FAMILY = "events"
