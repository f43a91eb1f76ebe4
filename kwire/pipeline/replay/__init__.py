"""Events of the lake, or of files, sent to a topic again: keys, headers, timestamps and order as they were.

Resumable and exact: a run that was killed goes on where it was, and nothing is there twice (`note`). Sending goes at a
pace. The source is put in order by Spark; sending is the work of one process, because order is what it has to keep.
"""

from kwire.pipeline.replay.job import add_arguments as add_arguments
from kwire.pipeline.replay.job import run as run
