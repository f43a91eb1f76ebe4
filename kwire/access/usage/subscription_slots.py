"""The interface of subscription slots: each open subscription of a key holds one, up to the key's max_subscriptions.

One node decides, the holder of the lease `subscriptions` in the metadata store. This node may be another one than the
node with the session. `SlotLeader` is the implementation of the deciding node. A node that does not decide will use an
implementation that sends the requests to `/db/internal/v1/subscriptions/` of the deciding node.
"""

from typing import NamedTuple, Protocol

from kwire.access.keys.key import Key

# The time after which a slot of another node is freed, unless that node has renewed it.
SLOT_SECONDS = 30


class Slot(NamedTuple):
    """A slot that was granted. `holder` is the node with the session."""

    usage_id: str
    holder: str
    slot_id: str


class SlotDenied(Exception):
    """The key has as many subscriptions as it may. Nothing was taken, so there is nothing to release."""

    def __init__(self, used: int, limit: int) -> None:
        super().__init__(f"the key has {used} subscriptions, and may have {limit}")
        self.used = used
        self.limit = limit


class SlotsUnavailable(Exception):
    """No node decides about slots at the moment, or there are too many slots. The client may try again."""


class SubscriptionSlots(Protocol):
    """The slots, as the node with the sessions uses them."""

    async def request(self, key: Key) -> Slot:
        """Take a slot. Raises SlotDenied, SlotsUnavailable, or StorageError if the count could not be stored."""
        ...

    def release(self, slot: Slot) -> None:
        """Free a slot. It does not wait, and does not fail: a slot whose release is lost expires."""
        ...
