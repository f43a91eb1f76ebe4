"""The runtime of a coordinator: decide -> append -> apply -> reply once committed.

The runtime owns the shards, one per partition of an internal topic. It knows nothing of groups or transactions: a
shard's state machine decides, and everything with an effect (the log, the clock, timers, waiting clients) is here.

Rules it keeps:
- a record is applied only after it was appended, in the order of the log, so replay gives the same state;
- a reply leaves only when everything appended to its shard before it is committed, also the reply of a mere read, so
  nobody is told of a state that a crash could take back;
- every command is answered exactly once;
- records of a client's transaction are handed to the machine as pending, when they are appended and when they are
  replayed; the marker that ends the transaction goes through the same log, so both see it at the same place;
- an effect (what a decision wants done elsewhere) follows the same rule as a reply and keeps its place among them;
- time enters a decision as a `Moment`; a deadline comes back as a command that the machine itself asked for.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from kwire.broker.internal_records import KeyValue as KeyValue
from kwire.broker.internal_records import Paused, PendingRecord, Replayed, TransactionEnd
from kwire.broker.internal_records import Transaction as Transaction
from kwire.broker.partition import code_of
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from storage.errors import InvalidProducerEpoch, StorageError

logger = logging.getLogger(__name__)

# How long records are applied before the loop gets its turn; a shard that takes longer answers "loading" meanwhile.
REPLAY_TURN_SECONDS = 0.005
# The pause between two such turns, whichever shards they are for, so that loading takes no more than half of the loop.
REPLAY_PAUSE_SECONDS = 0.005
# Commands of one shard that wait for an answer (joins, syncs); more are told to come back.
WAITING_COMMANDS_MAX = 100_000
# Names whose shard is remembered, if they are not longer than this: Java's hash takes Python a while.
REMEMBERED_NAMES_MAX = 20_000
REMEMBERED_NAME_CHARACTERS_MAX = 128
# Names tried for each shard until one falls on it, many times what is ever needed.
KEYS_PER_SHARD_MAX = 1_000

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)
# Told once, with what came in the way or None.
Done = Callable[[KafkaError | None], None]


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

    __slots__ = ("decided_anew", "effects", "records", "replies", "transaction")

    def __init__(self) -> None:
        self.records: list[KeyValue] = []
        # Whose transaction the records are part of, all of them or none.
        self.transaction: Transaction | None = None
        self.replies: list[Reply] = []
        self.effects: list[Any] = []
        self.decided_anew: list[Command[Any]] = []

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


class CoordinatorLog(Protocol):
    """The internal topic, as far as a coordinator cares."""

    def append(self, shard: int, records: Sequence[KeyValue], now_ms: int) -> int:
        """Append as one batch; the next offset. Raises StorageError, KafkaError, or LookupError if there is no topic;
        then nothing was appended."""
        ...

    def append_pending(self, shard: int, transaction: Transaction, records: Sequence[KeyValue], now_ms: int) -> int:
        """Append as one batch of a producer's transaction. As `append`; raises InvalidProducerEpoch if the producer has
        been replaced."""
        ...

    def append_marker(self, shard: int, transaction: Transaction, coordinator_epoch: int, is_commit: bool) -> int:
        """Append what ends a producer's transaction. As `append_pending`."""
        ...

    def on_committed(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        """Call when everything below `offset` is committed, at once if it is; with an error if it will not be."""
        ...

    def on_synced(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        """The same when it is on disk, also where the topic promises less."""
        ...

    def replay(self, shard: int) -> Iterator[Replayed | Paused]: ...


class Timer(Protocol):
    def cancel(self) -> object: ...


CallLater = Callable[[float, Callable[[], None]], Timer]
# Given an effect whose decision is committed, or with the error that says that it may never be.
OnEffect = Callable[[Any, KafkaError | None], None]
M = TypeVar("M", bound=StateMachine)


class _Ending(NamedTuple):
    """The end of a transaction, on its way into the log."""

    transaction: Transaction
    coordinator_epoch: int
    is_commit: bool
    done: Done


class _Shard(Generic[M]):
    """One partition of the internal topic: its state, who waits for an answer, and its one timer."""

    __slots__ = (
        "armed_ms",
        "committed_offset",
        "end_offset",
        "endings",
        "index",
        "is_loaded",
        "machine",
        "replay",
        "timer",
        "waiting",
    )

    def __init__(self, index: int, machine: M) -> None:
        self.index = index
        self.machine = machine
        self.is_loaded = False
        self.replay: Iterator[Replayed | Paused] | None = None
        # Ends of transactions that came while the shard was being loaded.
        self.endings: list[_Ending] = []
        # Behind the last record appended since the replay, and how far those are known to be committed.
        self.end_offset = 0
        self.committed_offset = 0
        self.waiting: dict[Command[Any], Callable[[Any], None]] = {}
        self.timer: Timer | None = None
        self.armed_ms: int | None = None


class CoordinatorRuntime(Generic[M]):
    """Runs the state machines of one internal topic. Not thread-safe: everything happens on the event loop."""

    def __init__(
        self,
        *,
        shard_count: int,
        new_machine: Callable[[], M],
        log: CoordinatorLog,
        clock: Clock,
        call_later: CallLater,
        on_effect: OnEffect | None = None,
    ) -> None:
        self._shard_count = shard_count
        self._new_machine = new_machine
        self._log = log
        self._clock = clock
        self._call_later = call_later
        self._on_effect = on_effect
        self._shards: dict[int, _Shard[M]] = {}
        # Those that are not loaded yet; their turns follow one another.
        self._loading: deque[_Shard[M]] = deque()
        self._replay_timer: Timer | None = None
        self._remembered: dict[str, int] = {}
        self._is_closed = False

    def shard_of(self, key: str) -> int:
        """The partition that keeps a group or a transactional id: Kafka's choice, so that its tools find it."""
        index = self._remembered.get(key)
        if index is None:
            index = _positive(java_hash(key)) % self._shard_count
            if len(key) <= REMEMBERED_NAME_CHARACTERS_MAX:
                if len(self._remembered) >= REMEMBERED_NAMES_MAX:
                    self._remembered.clear()
                self._remembered[key] = index
        return index

    def submit(self, key: str, command: Command[A], reply: Callable[[A], None]) -> None:
        """Run a command on the shard of `key`; `reply` is called once, now or later."""
        shard = self._loaded_shard(self.shard_of(key))
        if isinstance(shard, ErrorCode):
            reply(command.refused(shard))
            return
        if len(shard.waiting) >= WAITING_COMMANDS_MAX:
            reply(command.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        shard.waiting[command] = reply
        try:
            self._run(shard, command)
        except BaseException:
            shard.waiting.pop(command, None)
            raise

    def end_transaction(
        self,
        shard: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        done: Done,
    ) -> None:
        """Append the marker that ends a producer's transaction in this shard; `done` is called when it is committed.

        A shard that is not loaded is loaded first. Done without an error, nothing of the transaction is pending there.
        """
        ending = _Ending(Transaction(producer_id, producer_epoch), coordinator_epoch, is_commit, done)
        if not 0 <= shard < self._shard_count:
            done(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no shard {shard}"))
            return
        found = self._loaded_shard(shard)
        if not isinstance(found, ErrorCode):
            self._end(found, ending)
        elif found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._has_room_for_ending(shard):
            self._shards[shard].endings.append(ending)
        else:
            done(KafkaError(found))

    def tell(self, key: str, command: Command[Any]) -> None:
        """Run a command on whose answer nobody waits. Without effect on a shard that is not loaded."""
        shard = self._shards.get(self.shard_of(key))
        if shard is not None and shard.is_loaded and not self._is_closed:
            self._run(shard, command)

    def machines(self) -> Iterator[M]:
        """The state of every shard that has been loaded."""
        return (shard.machine for shard in self._shards.values() if shard.is_loaded)

    def waiting_count(self) -> int:
        """Commands that have not been answered yet."""
        return sum(len(shard.waiting) for shard in self._shards.values())

    def close(self) -> None:
        """Stop the timers and tell whoever waits to look for another coordinator."""
        self._is_closed = True
        if self._replay_timer is not None:
            self._replay_timer.cancel()
        for shard in self._shards.values():
            if shard.timer is not None:
                shard.timer.cancel()
                shard.timer = None
            waiting, shard.waiting = shard.waiting, {}
            for command, reply in waiting.items():
                reply(command.refused(ErrorCode.NOT_COORDINATOR))
            _refuse_endings(shard, ErrorCode.NOT_COORDINATOR)

    # Loading

    def _loaded_shard(self, index: int) -> _Shard[M] | ErrorCode:
        if self._is_closed:
            return ErrorCode.NOT_COORDINATOR
        shard = self._shards.get(index)
        if shard is None:
            shard = self._shards[index] = _Shard(index, self._new_machine())
            self._loading.append(shard)
            if self._replay_timer is None:
                self._replay_turn()
        if shard.is_loaded:
            return shard
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._shards else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _replay_turn(self) -> None:
        """Load the first shard in line, or some of it; come back for the rest and for the others."""
        shard = self._loading.popleft()
        try:
            if not self._replay(shard):
                self._loading.append(shard)
        finally:
            if self._loading:
                self._replay_timer = self._call_later(REPLAY_PAUSE_SECONDS, self._replay_turn)
            else:
                self._replay_timer = None

    def _replay(self, shard: _Shard[M]) -> bool:
        """Apply some records; whether that is over, for better or worse."""
        try:
            if shard.replay is None:
                shard.replay = iter(self._log.replay(shard.index))
            turn_end = self._clock.monotonic() + REPLAY_TURN_SECONDS
            for one in shard.replay:
                if isinstance(one, tuple):
                    shard.machine.apply(*one)
                elif isinstance(one, Paused):
                    return False
                else:
                    _apply_of_transaction(shard.machine, one)
                if self._clock.monotonic() >= turn_end:
                    return False
        except Exception:
            # Better no coordinator than one that forgot a commit: the next request tries to load again.
            logger.exception("coordinator shard %d cannot be loaded", shard.index)
            del self._shards[shard.index]
            _refuse_endings(shard, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return True
        shard.replay = None
        shard.is_loaded = True
        shard.machine.loaded(self._moment())
        self._arm(shard)
        endings, shard.endings = shard.endings, []
        for ending in endings:
            self._end(shard, ending)
        return True

    def _has_room_for_ending(self, index: int) -> bool:
        return len(self._shards[index].endings) < WAITING_COMMANDS_MAX

    # Deciding

    def _moment(self) -> Moment:
        return Moment(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    def _run(self, shard: _Shard[M], command: Command[Any]) -> None:
        moment = self._moment()
        try:
            self._carry_out(shard, command, shard.machine.step(command, moment), moment)
        finally:
            self._arm(shard)

    def _carry_out(self, shard: _Shard[M], command: Command[Any], result: Result, moment: Moment) -> None:
        replies, effects, decided_anew = result.replies, result.effects, result.decided_anew
        if result.records:
            try:
                shard.end_offset = self._append(shard, result, moment)
            except (StorageError, KafkaError, LookupError) as error:
                code = _append_code(shard, error)
                # Also who was to wait is told: what would have answered it later may not have come to be.
                refused = dict.fromkeys((*(reply.command for reply in replies), command))
                replies = [Reply(one, one.refused(code)) for one in refused]
                effects, decided_anew = [], []
            else:
                _apply(shard.machine, result)
        if replies or effects:
            # A command whose own step failed is not waiting any more, though the machine may still know it.
            waiting = [
                (reply, command, answer)
                for command, answer in replies
                if (reply := shard.waiting.pop(command, None)) is not None
            ]
            end_offset = shard.end_offset
            if end_offset > shard.committed_offset:
                call = partial(self._release, shard, end_offset, waiting, effects)
                self._log.on_committed(shard.index, end_offset, call)
            else:
                # What was replayed is committed, and so is everything since then.
                self._release(shard, end_offset, waiting, effects, None)
        for one in decided_anew:
            if one in shard.waiting:
                self._run_late(shard, one)

    def _release(
        self,
        shard: _Shard[M],
        end_offset: int,
        waiting: list[tuple[Callable[[Any], None], Command[Any], Any]],
        effects: list[Any],
        error: KafkaError | None,
    ) -> None:
        if error is None and end_offset > shard.committed_offset:
            shard.committed_offset = end_offset
        for reply, command, answer in waiting:
            # Not committed: whether the decision survives is unknown, so nobody is told that it was taken.
            reply(answer if error is None else command.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if effects and self._on_effect is not None and not self._is_closed:
            for effect in effects:
                self._on_effect(effect, error)

    def _run_late(self, shard: _Shard[M], command: Command[Any]) -> None:
        """Run a command when nobody is there to hear that it failed, except who waits for its answer."""
        try:
            self._run(shard, command)
        except Exception:
            # The deadlines of others are not to be forgotten for it.
            logger.exception("a command in coordinator shard %d", shard.index)
            reply = shard.waiting.pop(command, None)
            if reply is not None:
                reply(command.refused(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _append(self, shard: _Shard[M], result: Result, moment: Moment) -> int:
        if result.transaction is None:
            return self._log.append(shard.index, result.records, moment.wall_ms)
        return self._log.append_pending(shard.index, result.transaction, result.records, moment.wall_ms)

    def _end(self, shard: _Shard[M], ending: _Ending) -> None:
        transaction, coordinator_epoch, is_commit, done = ending
        try:
            end_offset = self._log.append_marker(shard.index, transaction, coordinator_epoch, is_commit)
        except StorageError as error:
            done(KafkaError(code_of(error), str(error)))
            return
        except KafkaError as error:
            done(error)
            return
        except LookupError as error:
            done(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)))
            return
        shard.end_offset = end_offset
        _apply_of_transaction(shard.machine, TransactionEnd(transaction.producer_id, is_commit))
        self._arm(shard)

        def committed(error: KafkaError | None) -> None:
            if error is None and end_offset > shard.committed_offset:
                shard.committed_offset = end_offset
            done(error)

        self._log.on_synced(shard.index, end_offset, committed)

    # Time

    def _arm(self, shard: _Shard[M]) -> None:
        """See to it that the shard's timer fires no later than its next deadline; too early does no harm."""
        wake_ms = shard.machine.wake_ms()
        if self._is_closed or wake_ms is None or (shard.armed_ms is not None and shard.armed_ms <= wake_ms):
            return
        if shard.timer is not None:
            shard.timer.cancel()
        shard.armed_ms = wake_ms
        delay_ms = max(0, wake_ms - self._moment().steady_ms)
        shard.timer = self._call_later(delay_ms / 1000, lambda: self._on_timer(shard))

    def _on_timer(self, shard: _Shard[M]) -> None:
        shard.timer = None
        shard.armed_ms = None
        for command in shard.machine.due(self._moment().steady_ms):
            self._run_late(shard, command)
        self._arm(shard)


def _apply(machine: StateMachine, result: Result) -> None:
    if result.transaction is None:
        for key, value in result.records:
            machine.apply(key, value)
        return
    producer_id = result.transaction.producer_id
    for key, value in result.records:
        _apply_of_transaction(machine, PendingRecord(producer_id, key, value))


def _apply_of_transaction(machine: StateMachine, one: PendingRecord | TransactionEnd) -> None:
    # Only a machine that asked for a transaction has any in its log.
    transactional = cast(TransactionalMachine, machine)
    if isinstance(one, PendingRecord):
        transactional.apply_pending(one.producer_id, one.key, one.value)
    else:
        transactional.end_transaction(one.producer_id, one.is_commit)


def _append_code(shard: _Shard[Any], error: Exception) -> ErrorCode:
    """What whoever waits is told about an append that failed."""
    if isinstance(error, InvalidProducerEpoch):
        # Not for want of anything here: the client is an old one that has not heard of its successor.
        return ErrorCode.INVALID_PRODUCER_EPOCH
    # Without a topic nobody has looked for a coordinator yet: the answer says so, the log need not.
    if not isinstance(error, LookupError):
        logger.exception("coordinator shard %d cannot append", shard.index)
    # What is too large stays so: a client that tries again for ever is not helped.
    is_too_large = (isinstance(error, KafkaError) and error.code is ErrorCode.MESSAGE_TOO_LARGE) or (
        isinstance(error, StorageError) and code_of(error) is ErrorCode.MESSAGE_TOO_LARGE
    )
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_too_large else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _refuse_endings(shard: _Shard[Any], code: ErrorCode) -> None:
    endings, shard.endings = shard.endings, []
    for ending in endings:
        ending.done(KafkaError(code))


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: 31-based over UTF-16 units, wrapped to a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _positive(value: int) -> int:
    """Kafka's own `abs`: the smallest integer has no positive twin and becomes zero."""
    return 0 if value == -(1 << 31) else abs(value)


def keys_of_shards(shard_count: int, shard_of: Callable[[str], int]) -> list[str]:
    """A name that falls on each shard: under it the shard can be asked about everything that it holds."""
    keys: dict[int, str] = {}
    for number in range(shard_count * KEYS_PER_SHARD_MAX):
        keys.setdefault(shard_of(str(number)), str(number))
        if len(keys) == shard_count:
            return [keys[shard] for shard in range(shard_count)]
    raise ValueError(f"{shard_count} shards are too many to find a name for each")
