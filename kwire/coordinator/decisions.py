"""The interface between a coordinator's state machine and its runtime: commands, results and records to apply."""

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, cast

from msgspec import Struct

from kwire.coordinator.log_records import KeyValue, PendingRecord, ProducerIdAndEpoch, TransactionEnd
from kwire.errors import ErrorCode

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)


class Command(Protocol[Answer_co]):
    """An input of a state machine, from a client or because a deadline has passed. Commands are compared by identity.

    The runtime stores the callback that gets the command's answer.
    """

    def refused(self, error: ErrorCode) -> Answer_co:
        """Return an answer to this command that contains only this error."""
        ...


class Moment(Struct, frozen=True, gc=False):
    """The time at which a decision is made."""

    steady_ms: int  # from the monotonic clock, for deadlines
    wall_ms: int  # from the wall clock, for timestamps in records


class Reply(Struct, frozen=True, eq=False):
    command: Command[Any]
    answer: Any


class Result(Struct, eq=False):
    """The outcome of a decision: the records to append, the replies and the effects.

    When the records are committed, the replies are sent and the effects are carried out. If the records cannot be
    appended, the runtime discards the decision and answers its commands with an error.
    """

    records: list[KeyValue] = []
    # The decoded form of each record, or an empty list if the decision does not have the decoded forms.
    decoded: list[Any] = []
    # The transaction that all the records belong to, if any.
    transaction: ProducerIdAndEpoch | None = None
    replies: list[Reply] = []
    effects: list[Any] = []
    # Waiting commands that are run again when the records are applied.
    reruns: Sequence[Command[Any]] = ()

    def reply(self, command: Command[A], answer: A) -> None:
        self.replies.append(Reply(command, answer))

    def refuse(self, command: Command[Any], error: ErrorCode) -> None:
        self.replies.append(Reply(command, command.refused(error)))

    def rerun(self, command: Command[Any]) -> None:
        """Run a waiting command again as soon as the records are applied."""
        self.reruns = (*self.reruns, command)


class StateMachine(Protocol):
    """The state of one shard. `step` changes only state that a restart may lose. `apply` changes all other state."""

    def step(self, command: Any, moment: Moment) -> Result: ...

    def can_share_append(self, command: Any) -> bool:
        """Return whether the command's records may be appended in one batch with those of similar commands.

        The command's decision must be the same before and after the records of the other commands are applied.
        """
        ...

    def apply(self, key: bytes, value: bytes | None) -> None: ...

    def loaded(self, moment: Moment) -> None:
        """Start the deadlines. Called when the replay has finished."""
        ...

    def wake_ms(self) -> int | None:
        """Return the time on the steady clock at which to call `due` next; None if there is no deadline."""
        ...

    def due(self, steady_ms: int) -> list[Command[Any]]:
        """Return a command for each deadline that has passed."""
        ...


class TransactionalMachine(StateMachine, Protocol):
    """A state machine whose records may be part of a client's transaction."""

    def apply_pending(self, producer_id: int, key: bytes, value: bytes | None) -> None: ...

    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        """Apply (commit) or drop (abort) the pending records of this producer, if there are any."""
        ...


class DecodedMachine(StateMachine, Protocol):
    """A state machine whose results contain decoded records (`Result.decoded`)."""

    def apply_decoded(self, decoded: Sequence[Any], transaction: ProducerIdAndEpoch | None) -> None:
        """Apply the decoded records: as `apply` does, or as `apply_pending` does if they belong to a transaction."""
        ...


def apply_result(machine: Any, result: Result) -> None:
    """Apply the records of a decision. They have been appended."""
    decoded = result.decoded
    if decoded:
        # Only a DecodedMachine returns decoded records.
        assert len(decoded) == len(result.records)
        machine.apply_decoded(decoded, result.transaction)
        return
    if result.transaction is None:
        for key, value in result.records:
            machine.apply(key, value)
        return
    producer_id = result.transaction.producer_id
    for key, value in result.records:
        apply_transactional(machine, PendingRecord(producer_id, key, value))


def apply_transactional(machine: StateMachine, one: PendingRecord | TransactionEnd) -> None:
    """Apply a record of a client's transaction, or the end of the transaction."""
    # Only a TransactionalMachine has transactional records in its log.
    transactional = cast(TransactionalMachine, machine)
    if isinstance(one, PendingRecord):
        transactional.apply_pending(one.producer_id, one.key, one.value)
    else:
        transactional.end_transaction(one.producer_id, one.is_commit)
