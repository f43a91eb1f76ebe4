"""Every pair of a state and an event, and which of them were tried.

What was tried is seen where it happens, in the state machine itself, so a scenario cannot claim a pair that it does
not reach.
"""

from enum import Enum
from itertools import product
from typing import Any, NamedTuple

from kwire.coordinator.decisions import Moment, Result
from kwire.coordinator.transaction.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    RunTimeoutScan,
    VerifyPartitions,
)
from kwire.coordinator.transaction.shard import TransactionShard
from kwire.coordinator.transaction.states import State, TransactionMetadata
from tests.coordinator.transaction.world import World

ABSENT = "absent"
STATES = tuple(state.kafka_name for state in State)


class Producer(Enum):
    """Who asks, as the coordinator sees it."""

    PRESENT = "by the present producer"
    BEFORE = "with the epoch before"
    OTHER_EPOCH = "with another epoch"
    OTHER_ID = "by another producer"


class Pair(NamedTuple):
    state: str
    event: str


_BY_PRODUCER = (
    "init",
    "add more",
    "verify",
    *(f"end {how} {version}" for how, version in product(("commit", "abort"), ("v1", "v2"))),
)
_BY_NOBODY = (
    "init anew",
    "describe",
    "list",
    "markers written",
    "markers failed",
    "time is out",
    "id expires",
    "restart",
)
EVENTS = (*_BY_NOBODY, *(f"{event} {one.value}" for event, one in product(_BY_PRODUCER, Producer)))
# The partitions are known only to a transaction that is open.
ADD_KNOWN = "add known by the present producer"
# Who does not exist has no producer, and nothing to wait for.
EVENTS_OF_ABSENT = ("init anew", "describe", "list", "restart", *_BY_PRODUCER)

ALL_PAIRS = frozenset(
    {
        *(Pair(state, event) for state, event in product(STATES, EVENTS)),
        Pair(State.ONGOING.kafka_name, ADD_KNOWN),
        *(Pair(ABSENT, event) for event in EVENTS_OF_ABSENT),
    }
)


class Pairs:
    """Watches the worlds of a scenario."""

    def __init__(self) -> None:
        self.tried: set[Pair] = set()
        self._before: set[Pair] = set()
        self._world: World | None = None

    def watch(self, world: World) -> None:
        self._world = world
        self._before = set(self.tried)
        build = world._build

        def built() -> Any:
            coordinator = build()
            runtime = coordinator._runtime
            new_machine = runtime._new_machine

            def watched() -> TransactionShard:
                shard = new_machine()
                step = shard.step

                def noted(command: Any, moment: Moment) -> Result:
                    self._note(shard, command, moment)
                    return step(command, moment)

                shard.step = noted  # type: ignore[method-assign]
                return shard

            runtime._new_machine = watched
            return coordinator

        world._build = built  # type: ignore[method-assign]
        world.transactions = built()

    def forget(self) -> None:
        """What was only the way to a state counts as nothing."""
        self.tried = set(self._before)

    def note_event(self, event: str) -> None:
        assert self._world is not None
        metadata = self._world.metadata()
        self.tried.add(Pair(ABSENT if metadata is None else metadata.state.kafka_name, event))

    def _note(self, shard: TransactionShard, command: Any, moment: Moment) -> None:
        if isinstance(command, RunTimeoutScan):
            for one in shard.transactions.values():
                due = _rounds(one.metadata, shard, moment)
                self.tried.update(Pair(one.metadata.state.kafka_name, event) for event in due)
            return
        transaction = shard.transactions.get(getattr(command, "transactional_id", ""))
        metadata = None if transaction is None else transaction.metadata
        event = _event(command, metadata)
        if event is not None:
            self.tried.add(Pair(ABSENT if metadata is None else metadata.state.kafka_name, event))


def _rounds(metadata: TransactionMetadata, shard: TransactionShard, moment: Moment) -> list[str]:
    """What a round that is made now could do to a transaction, if it did not look at the state."""
    events = []
    if moment.wall_ms - metadata.update_ms > metadata.timeout_ms:
        events.append("time is out")
    if moment.wall_ms - metadata.update_ms >= shard._settings.transactional_id_expiration_ms:
        events.append("id expires")
    return events


def _event(command: Any, metadata: TransactionMetadata | None) -> str | None:
    if isinstance(command, DescribeTransaction):
        return "describe"
    if isinstance(command, MarkersWritten):
        return "markers failed" if command.failed else "markers written"
    name = _name(command, metadata)
    if name is None or metadata is None or name == "init anew":
        return name
    return f"{name} {_producer(command, metadata).value}"


def _name(command: Any, metadata: TransactionMetadata | None) -> str | None:
    if isinstance(command, InitProducer):
        return "init anew" if command.producer_id == -1 else "init"
    if isinstance(command, AddPartitions):
        return (
            "add known" if metadata is not None and metadata.partitions.issuperset(command.partitions) else "add more"
        )
    if isinstance(command, VerifyPartitions):
        return "verify"
    if isinstance(command, EndTransaction):
        return f"end {'commit' if command.is_commit else 'abort'} {'v2' if command.is_v2 else 'v1'}"
    return None


def _producer(command: Any, metadata: TransactionMetadata) -> Producer:
    if command.producer_id != metadata.producer_id:
        return Producer.OTHER_ID
    if command.producer_epoch == metadata.producer_epoch:
        return Producer.PRESENT
    return Producer.BEFORE if command.producer_epoch == metadata.producer_epoch - 1 else Producer.OTHER_EPOCH
