"""Whether topics and their tables hold the same events: counts and checksums for each partition and hour, then rows.

`topic_rows` makes of the topic's records what the lake job would make of them, `comparison` compares that with the
table, `report` tells what was found.
"""

from kwire.pipeline.reconcile.job import add_arguments as add_arguments
from kwire.pipeline.reconcile.job import run as run
