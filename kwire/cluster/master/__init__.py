"""The master of the Stream Engine: leaders, epochs, segment lists, copy sets, and the repair of sealed segments.

Every decision is a function of a request, the metadata as read and the time. It returns changes of the metadata and an
answer. `Master` commits the changes to a metadata store and releases the answer after that. docs/stream-engine.md
explains the protocol.
"""

from kwire.cluster.master.master import Master, NotMaster, Outcome
from kwire.cluster.master.settings import MasterSettings

__all__ = ["Master", "MasterSettings", "NotMaster", "Outcome"]
