"""The event store on a Kafka cluster: transactions store the events, and a journal topic has the order of all commits.

Transaction markers take offsets, so the number of an event is a header of its record. `NumberedLog` shows a topic with
these numbers as offsets.
"""
