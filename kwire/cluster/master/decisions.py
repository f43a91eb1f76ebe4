"""The result of a decision: changes of the metadata, and what is released when they are durable."""

from typing import NamedTuple

from msgspec import Struct

from kwire.cluster.core.control import AdminAnswer, ClientAnswer, StoreRegistration
from kwire.cluster.core.messages import Copy, Drop, Finish, TrimBefore
from kwire.metastore.interface import Change, Condition

Answer = ClientAnswer | StoreRegistration | AdminAnswer


class LeaseTerm(NamedTuple):
    """The lease of the leader of an epoch, by the master's clock."""

    stream: str
    epoch: int
    expires_ms: int


class Order(NamedTuple):
    """A message to a store."""

    store: str
    body: Copy | Drop | Finish | TrimBefore


class Decision(Struct, frozen=True):
    """What to commit, and then what to answer, to send and to remember.

    If there are no changes, nothing is committed. `alarms` are facts that must not occur, in words for an operator.
    """

    answer: Answer | None
    changes: tuple[Change, ...] = ()
    conditions: tuple[Condition, ...] = ()
    lease: LeaseTerm | None = None
    orders: tuple[Order, ...] = ()
    alarms: tuple[str, ...] = ()
