"""The sixth family of works: Spark. Its Kafka source on either server, and kwire's lake job from topic to table.

Spark runs in programs of this family's own, with the session that kwire's jobs have. Run it with
`scripts/bench pipeline`.
"""

FAMILY = "pipeline"
