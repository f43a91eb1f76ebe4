"""Spark jobs on topics and rooms (lake, analytics, replay, reconcile), started by `kwire pipeline JOB` or spark-submit.

Jobs use the server's Kafka port for records and its HTTP port for topic descriptions. PySpark is imported only when a
job runs.
"""
