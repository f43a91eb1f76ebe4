"""What a coordinator's state machine and its runtime exchange: commands in, decisions out, records to apply."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from kwire.broker.internal_records import KeyValue, Transaction
from kwire.errors import ErrorCode

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)


class Command(Protocol[Answer_co]):
    """What a client, or a deadline, wants. Compared by identity; the runtime knows where the answer goes."""

    def refused(self, error: ErrorCode) -> Answer_co:
        """The answer that says only that this error came in the way."""
        ...


class Moment(NamedTuple):
    """The time at which a decision is taken."""

    steady_ms: int  # only grows; deadlines are measured by it
    wall_ms: int  # the time of day; what is written into records


class Reply(NamedTuple):
    command: Command[Any]
    answer: Any


class Result:
    """What a decision wants to happen: records to append, and what follows from them.

    Answers are given, and effects carried out, once the records are committed. Of a decision whose records cannot be
    appended nothing happens.
    """

    __slots__ = ("decided_anew", "decoded", "effects", "records", "replies", "transaction")

    def __init__(self) -> None:
        self.records: list[KeyValue] = []
        # What the machine would decode from each of the records, if the decision has it at hand: for all or for none.
        self.decoded: list[Any] = []
        # Whose transaction the records are part of, all of them or none.
        self.transaction: Transaction | None = None
        self.replies: list[Reply] = []
        self.effects: list[Any] = []
        self.decided_anew: list[Command[Any]] = []

    def put_decoded(self, record: KeyValue, decoded: Any) -> None:
        """Add a record together with what the machine would decode from it."""
        self.records.append(record)
        self.decoded.append(decoded)

    def reply(self, command: Command[A], answer: A) -> None:
        self.replies.append(Reply(command, answer))

    def refuse(self, command: Command[Any], error: ErrorCode) -> None:
        self.replies.append(Reply(command, command.refused(error)))

    def decide_anew(self, command: Command[Any]) -> None:
        """Put a command that waits for its answer to the machine again, as soon as the records are applied."""
        self.decided_anew.append(command)


class StateMachine(Protocol):
    """One shard's state. `step` may change only what a restart may forget; the rest changes in `apply`."""

    def step(self, command: Any, moment: Moment) -> Result: ...

    def is_independent(self, command: Any) -> bool:
        """Whether the decision on the command is the same before and after those on other independent commands are
        applied."""
        ...

    def apply(self, key: bytes, value: bytes | None) -> None: ...

    def loaded(self, moment: Moment) -> None:
        """Replay is over: start the deadlines."""
        ...

    def wake_ms(self) -> int | None:
        """When `due` wants to be asked next, on the steady clock."""
        ...

    def due(self, steady_ms: int) -> list[Command[Any]]:
        """The commands whose time has come."""
        ...


class TransactionalMachine(StateMachine, Protocol):
    """A state machine to which clients write in transactions."""

    def apply_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None: ...

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """What was pending of this producer, if anything, counts now, or never will."""
        ...


class DecodedMachine(StateMachine, Protocol):
    """A state machine whose decisions have decoded records (`Result.decoded`)."""

    def apply_decoded(self, decoded: Sequence[Any], transaction: Transaction | None) -> None:
        """As `apply` or `apply_pending` for each of the records."""
        ...
