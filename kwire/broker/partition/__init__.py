"""A partition: one ordered log, when its records may be read and acknowledged, and the requests that wait for that.

Code outside this package uses `Partition`; the log behind it is private.
"""

from kwire.broker.partition.partition import NEVER_MS, WAIT_MS_MAX, Partition, Syncs, code_of

__all__ = ["NEVER_MS", "WAIT_MS_MAX", "Partition", "Syncs", "code_of"]
