"""Spark jobs on topics and rooms: the lake, analytics, replay and reconcile.

Only the network connects this room to the server: the Kafka port for records, the HTTP port for what topics are like.
Each job is a module with `add_arguments(parser)` and `run(arguments)`; `kwire pipeline JOB` and
`spark-submit … -m kwire.pipeline JOB` start it. PySpark is imported where it is used, so that nothing else needs it.
"""
