"""The metadata store: the catalogue of topics, dynamic settings, producer id blocks, and the node's own entry.

The store is small and rarely written. Lookups read only memory. A commit is one compare-and-set of several keys. It is
durable before it becomes visible. `embedded.py` keeps the store in a journal of this node. Another implementation of
the interface can replace it.
"""

from kwire.metastore.commits import batches
from kwire.metastore.embedded import EmbeddedMetaStore
from kwire.metastore.interface import Change, Condition, Conflict, Entry, Lease, MetaStore, Watch
from kwire.metastore.plans import Plan

__all__ = [
    "Change",
    "Condition",
    "Conflict",
    "EmbeddedMetaStore",
    "Entry",
    "Lease",
    "MetaStore",
    "Plan",
    "Watch",
    "batches",
]
