"""The runtime of a coordinator: decide -> append -> apply -> reply once committed.

The runtime owns the shards, one per partition of an internal topic. It knows nothing of groups or transactions: a
shard's state machine decides, and everything with an effect (the log, the clock, timers, waiting clients) is here.

Rules it keeps:
- a record is applied only after it was appended, in the order of the log, so replay gives the same state;
- independent commands (offset commits) of one loop turn share an append: the first of a shard is appended at once, the
  others together at the end of the turn, or before another command of the shard is decided. Until then nothing of them
  is applied. If they cannot be appended together, each is appended, or refused, on its own;
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

from kwire.broker.internal_records import KeyValue, Paused, PendingRecord, Replayed, Transaction, TransactionEnd
from kwire.broker.partition import code_of
from kwire.clock import Clock
from kwire.coordinator.decisions import (
    Command,
    DecodedMachine,
    Moment,
    Reply,
    Result,
    StateMachine,
    TransactionalMachine,
)
from kwire.coordinator.sharding import Sharding
from kwire.errors import ErrorCode, KafkaError
from storage.errors import InvalidProducerEpoch, StorageError

logger = logging.getLogger(__name__)

# How long records are applied before the loop gets its turn; a shard that takes longer answers "loading" meanwhile.
REPLAY_TURN_SECONDS = 0.005
# The pause between two such turns, whichever shards they are for, so that loading takes no more than half of the loop.
REPLAY_PAUSE_SECONDS = 0.005
# Commands of one shard that wait for an answer (joins, syncs); more are told to come back.
WAITING_COMMANDS_MAX = 100_000
# Records of the decisions of one loop turn that are appended to a shard as one batch.
DEFERRED_RECORDS_MAX = 1_000

A = TypeVar("A")
# Told once, with what came in the way or None.
Done = Callable[[KafkaError | None], None]


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
# Calls at the end of the loop turn.
CallSoon = Callable[[Callable[[], None]], object]
# Given an effect whose decision is committed, or with the error that says that it may never be.
OnEffect = Callable[[Any, KafkaError | None], None]
M = TypeVar("M", bound=StateMachine)


class _Ending(NamedTuple):
    """The end of a transaction, on its way into the log."""

    transaction: Transaction
    coordinator_epoch: int
    is_commit: bool
    done: Done


class _Decision(NamedTuple):
    """A command, and what was decided on it."""

    command: Command[Any]
    result: Result


# The callback for the answer, the command, and the answer.
_Answer = tuple[Callable[[Any], None], Command[Any], Any]


class _Shard(Generic[M]):
    """One partition of the internal topic: its state, who waits for an answer, and its one timer."""

    __slots__ = (
        "armed_ms",
        "committed_offset",
        "deferred",
        "deferred_records",
        "end_offset",
        "endings",
        "index",
        "is_loaded",
        "machine",
        "replay",
        "timer",
        "turn",
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
        # The last turn in which an independent command was appended, and decisions of it that are not appended yet.
        self.turn = 0
        self.deferred: list[_Decision] = []
        self.deferred_records = 0


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
        call_soon: CallSoon | None = None,
        on_effect: OnEffect | None = None,
    ) -> None:
        """Without `call_soon` every decision is appended on its own."""
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
        self._is_closed = False
        self._call_soon = call_soon
        # The number of this loop turn, whether its end is awaited, and the shards with deferred decisions.
        self._turn = 1
        self._is_turn_open = False
        self._deferring: list[_Shard[M]] = []
        self.shard_of = Sharding(shard_count).shard_of

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

    def load(self, index: int) -> None:
        """Begin to load a shard, if that has not been begun."""
        self._loaded_shard(index)

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
        machine = shard.machine
        is_independent = self._call_soon is not None and machine.is_independent(command)
        if shard.deferred and not is_independent:
            self._append_deferred(shard)
        moment = self._moment()
        try:
            result = machine.step(command, moment)
            if is_independent and result.records and self._may_defer(shard):
                self._defer(shard, _Decision(command, result))
            else:
                self._carry_out(shard, command, result, moment)
        finally:
            self._arm(shard)

    def _carry_out(self, shard: _Shard[M], command: Command[Any], result: Result, moment: Moment) -> None:
        replies, effects, decided_anew = result.replies, result.effects, result.decided_anew
        if result.records:
            try:
                shard.end_offset = self._append(shard, result, moment)
            except (StorageError, KafkaError, LookupError) as error:
                code = _append_code(shard, error)
                # A command that was to wait is answered, too: what would have answered it later may not have happened.
                refused = dict.fromkeys((*(reply.command for reply in replies), command))
                replies = [Reply(one, one.refused(code)) for one in refused]
                effects, decided_anew = [], []
            else:
                _apply(shard.machine, result)
        if replies or effects:
            self._answer(shard, _waiting_answers(shard, replies), effects)
        for one in decided_anew:
            if one in shard.waiting:
                self._run_late(shard, one)

    def _answer(self, shard: _Shard[M], answers: list[_Answer], effects: list[Any]) -> None:
        """Answer, and carry out effects, when everything appended so far is committed."""
        end_offset = shard.end_offset
        if end_offset > shard.committed_offset:
            call = partial(self._release, shard, end_offset, answers, effects)
            self._log.on_committed(shard.index, end_offset, call)
        else:
            # What was replayed is committed, and so is everything since then.
            self._release(shard, end_offset, answers, effects, None)

    def _release(
        self,
        shard: _Shard[M],
        end_offset: int,
        answers: list[_Answer],
        effects: list[Any],
        error: KafkaError | None,
    ) -> None:
        if error is None and end_offset > shard.committed_offset:
            shard.committed_offset = end_offset
        for reply, command, answer in answers:
            # Not committed: whether the decision survives is unknown, so nobody is told that it was taken.
            reply(answer if error is None else command.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if effects and self._on_effect is not None and not self._is_closed:
            for effect in effects:
                self._on_effect(effect, error)

    # Decisions of one loop turn that are appended together

    def _may_defer(self, shard: _Shard[M]) -> bool:
        """Whether an independent command of this turn was appended to the shard already; notes this one if not."""
        if shard.turn == self._turn:
            return True
        shard.turn = self._turn
        if not self._is_turn_open and self._call_soon is not None:
            self._is_turn_open = True
            self._call_soon(self._end_turn)
        return False

    def _defer(self, shard: _Shard[M], decision: _Decision) -> None:
        if not shard.deferred:
            self._deferring.append(shard)
        shard.deferred.append(decision)
        shard.deferred_records += len(decision.result.records)
        if shard.deferred_records >= DEFERRED_RECORDS_MAX:
            self._append_deferred(shard)

    def _end_turn(self) -> None:
        self._turn += 1
        self._is_turn_open = False
        deferring, self._deferring = self._deferring, []
        for shard in deferring:
            self._append_deferred(shard)

    def _append_deferred(self, shard: _Shard[M]) -> None:
        """Append the deferred decisions as one batch, or one by one if that fails."""
        decisions, shard.deferred, shard.deferred_records = shard.deferred, [], 0
        if not decisions or self._is_closed:
            return
        moment = self._moment()
        try:
            if not self._append_together(shard, decisions, moment):
                for command, result in decisions:
                    self._carry_out(shard, command, result, moment)
        except Exception:
            # Neither another command of the shard nor other shards may fail for it.
            logger.exception("deferred commands in coordinator shard %d", shard.index)
            for command, _ in decisions:
                self._answer_failed(shard, command)

    def _append_together(self, shard: _Shard[M], decisions: Sequence[_Decision], moment: Moment) -> bool:
        if len(decisions) == 1:
            return False
        records = [record for _, result in decisions for record in result.records]
        try:
            shard.end_offset = self._log.append(shard.index, records, moment.wall_ms)
        except (StorageError, KafkaError, LookupError):
            # The batch may be too large although its parts are not. If the disk failed, each command gets the error.
            return False
        replies: list[Reply] = []
        for _, result in decisions:
            _apply(shard.machine, result)
            replies += result.replies
        self._answer(shard, _waiting_answers(shard, replies), [])
        return True

    def _answer_failed(self, shard: _Shard[M], command: Command[Any]) -> None:
        reply = shard.waiting.pop(command, None)
        if reply is not None:
            reply(command.refused(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _run_late(self, shard: _Shard[M], command: Command[Any]) -> None:
        """Run a command when nobody is there to hear that it failed, except who waits for its answer."""
        try:
            self._run(shard, command)
        except Exception:
            # The deadlines of others are not to be forgotten for it.
            logger.exception("a command in coordinator shard %d", shard.index)
            self._answer_failed(shard, command)

    def _append(self, shard: _Shard[M], result: Result, moment: Moment) -> int:
        if result.transaction is None:
            return self._log.append(shard.index, result.records, moment.wall_ms)
        return self._log.append_pending(shard.index, result.transaction, result.records, moment.wall_ms)

    def _end(self, shard: _Shard[M], ending: _Ending) -> None:
        self._append_deferred(shard)
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


def _waiting_answers(shard: _Shard[Any], replies: Sequence[Reply]) -> list[_Answer]:
    """The answers that somebody waits for: a command whose own step failed waits no longer."""
    answers = []
    for command, answer in replies:
        reply = shard.waiting.pop(command, None)
        if reply is not None:
            answers.append((reply, command, answer))
    return answers


def _apply(machine: StateMachine, result: Result) -> None:
    if result.decoded:
        assert len(result.decoded) == len(result.records)
        cast(DecodedMachine, machine).apply_decoded(result.decoded, result.transaction)
        return
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
