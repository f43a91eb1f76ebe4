"""A bridge: a process that serves streams over HTTP, with their records on a Kafka cluster.

`process` starts and stops it. Each other module composes one feature.
"""
