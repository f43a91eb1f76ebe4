"""A partition: its log, the rules that say when records are committed, and the calls that wait for commits.

Code outside this package uses `Partition`. For work on the files it uses `LogMaintenance`. The log itself is private.
"""

from kwire.broker.partition.commit_policy import NEVER_MS, Syncs
from kwire.broker.partition.errors import code_of
from kwire.broker.partition.maintenance import LogMaintenance
from kwire.broker.partition.partition import Partition
from kwire.broker.partition.reading import UNKNOWN_EPOCH
from kwire.broker.partition.time_search import TimeSearch
from kwire.broker.partition.waiting import WAIT_MS_MAX, OnReached

__all__ = [
    "NEVER_MS",
    "UNKNOWN_EPOCH",
    "WAIT_MS_MAX",
    "LogMaintenance",
    "OnReached",
    "Partition",
    "Syncs",
    "TimeSearch",
    "code_of",
]
