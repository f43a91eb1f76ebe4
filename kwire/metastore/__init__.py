"""What a cluster must agree on: the catalogue of topics, their configuration, producer-id blocks, node starts.

Small, rarely written, never lost. Readers see memory; a commit is one compare-and-set over several keys that is on disk
before it is seen. `embedded.py` keeps it in a journal of this node; other stores can take its place.
"""

from kwire.metastore.embedded import EmbeddedMetaStore
from kwire.metastore.interface import Change, Conflict, Entry, MetaStore

__all__ = ["Change", "Conflict", "EmbeddedMetaStore", "Entry", "MetaStore"]
