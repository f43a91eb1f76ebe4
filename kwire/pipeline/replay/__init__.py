"""Sends events of a table or of event files to a topic, with their original keys, headers, timestamps and order.

A replay that was killed can be resumed without duplicates, see checkpoint.py. Spark sorts the events, and one process
sends them.
"""

from kwire.pipeline.replay.job import add_arguments as add_arguments
from kwire.pipeline.replay.job import run as run
