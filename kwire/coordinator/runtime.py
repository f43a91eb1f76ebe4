"""The runtime of a coordinator: decide -> append -> apply -> reply once committed.

The runtime owns the shards, one per partition of an internal topic. It contains no logic of groups or transactions. A
shard's state machine makes the decisions. The runtime does all input and output: log, clock, timers, waiting clients.

Rules:
- Records are applied only after they were appended, in log order. So a replay produces the same state.
- Some commands can share an append (offset commits). In each turn (one iteration of the event loop), the records of the
  first such command of a shard are appended immediately. The records of the others are deferred: they are appended as
  one batch at the end of the turn, or earlier if a command that cannot share an append arrives for the shard. If the
  batch cannot be appended, the records of each command are appended separately.
- A reply is sent only after all records that were appended to its shard before the reply are committed. This is also
  true for replies to reads, so no client sees state that a crash could undo.
- Every command is answered exactly once.
- Records of a client's transaction are applied as pending records, also in a replay. The marker that ends the
  transaction is in the same log, so a replay applies the marker at the same position.
- An effect is work outside the shard that a decision causes. The runtime calls `on_effect` when the decision's records
  are committed, or with the error if the commit fails.
- A decision gets the time as a `Moment`. When a deadline has passed, the state machine returns a command from `due`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kwire.broker.partition import code_of
from kwire.clock import Clock
from kwire.coordinator.coordinator_log import CoordinatorLog
from kwire.coordinator.decisions import (
    Command,
    Moment,
    Reply,
    Result,
    StateMachine,
    apply_result,
    apply_transactional,
)
from kwire.coordinator.log_records import Paused, ProducerIdAndEpoch, Replayed, TransactionEnd
from kwire.coordinator.sharding import Sharding
from kwire.errors import ErrorCode, KafkaError
from storage.batch.record_batch import BatchHeader
from storage.errors import InvalidProducerEpoch, StorageError

logger = logging.getLogger(__name__)

# The longest time for which records are replayed in one turn of the event loop. Until a shard is loaded, its requests
# are answered with COORDINATOR_LOAD_IN_PROGRESS.
REPLAY_TURN_SECONDS = 0.005
# The pause between two replay turns, even of different shards. So loading takes at most half of the event loop's time.
REPLAY_PAUSE_SECONDS = 0.005
# The maximum number of commands of one shard that wait for an answer (joins, syncs). Further commands are answered with
# COORDINATOR_NOT_AVAILABLE.
WAITING_COMMANDS_MAX = 100_000
# When a shard has this many deferred records, they are appended without waiting for the end of the turn.
DEFERRED_RECORDS_MAX = 1_000

A = TypeVar("A")
# A callback that is called once: with None on success, else with the error.
Done = Callable[[KafkaError | None], None]


class Timer(Protocol):
    def cancel(self) -> object: ...


CallLater = Callable[[float, Callable[[], None]], Timer]
# Runs a callback at the end of the current event-loop turn.
CallSoon = Callable[[Callable[[], None]], object]
# Called with an effect and with None if its decision is committed, else with the error of the commit.
OnEffect = Callable[[Any, KafkaError | None], None]
M = TypeVar("M", bound=StateMachine)


class _PendingMarker(NamedTuple):
    """A transaction marker that has not been appended yet."""

    transaction: ProducerIdAndEpoch
    coordinator_epoch: int
    is_commit: bool
    done: Done


class _Decision(NamedTuple):
    """A command and its result."""

    command: Command[Any]
    result: Result


# A reply that can be sent: the callback that gets the answer, the command, and the answer.
_Answer = tuple[Callable[[Any], None], Command[Any], Any]


class Shard(Generic[M]):
    """One partition of the internal topic: its state machine, the commands that wait for an answer, and one timer."""

    __slots__ = (
        "armed_ms",
        "committed_offset",
        "deferred",
        "deferred_records",
        "end_offset",
        "index",
        "is_loaded",
        "machine",
        "pending_markers",
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
        # Markers that were received while the shard was being loaded.
        self.pending_markers: list[_PendingMarker] = []
        # The offset after the last record that was appended since the replay.
        self.end_offset = 0
        # All records below this offset are committed. The log may already have committed more.
        self.committed_offset = 0
        self.waiting: dict[Command[Any], Callable[[Any], None]] = {}
        self.timer: Timer | None = None
        self.armed_ms: int | None = None
        # The last turn in which a command that can share an append was appended, and the decisions deferred after it.
        self.turn = 0
        self.deferred: list[_Decision] = []
        self.deferred_records = 0


class CoordinatorRuntime(Generic[M]):
    """Runs the state machines of one internal topic. Use it only in the event loop's thread."""

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
        """Create a runtime. Without `call_soon`, the records of every decision are appended separately."""
        self._shard_count = shard_count
        self._new_machine = new_machine
        self._log = log
        self._clock = clock
        self._call_later = call_later
        self._on_effect = on_effect
        self._shards: dict[int, Shard[M]] = {}
        # Shards that are being loaded. Each replay turn replays the first one, and then moves it to the end.
        self._loading: deque[Shard[M]] = deque()
        self._replay_timer: Timer | None = None
        self._is_closed = False
        self._call_soon = call_soon
        # The number of this event-loop turn, whether a call of `_end_turn` is scheduled, and the shards with deferred
        # decisions.
        self._turn = 1
        self._is_turn_open = False
        self._deferring: list[Shard[M]] = []
        self.shard_of = Sharding(shard_count).shard_of

    def submit(self, key: str, command: Command[A], reply: Callable[[A], None]) -> None:
        """Run a command on the shard of `key`. Calls `reply` once with the answer, before this returns or later."""
        index = self.shard_of(key)
        shard = self._shards.get(index)
        if shard is None or not shard.is_loaded or self._is_closed:
            found = self._loaded_shard(index)
            if isinstance(found, ErrorCode):
                reply(command.refused(found))
                return
            shard = found
        if len(shard.waiting) >= WAITING_COMMANDS_MAX:
            reply(command.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        shard.waiting[command] = reply
        try:
            self._run(shard, command)
        except BaseException:
            shard.waiting.pop(command, None)
            raise

    def loaded_shard(self, key: str) -> "Shard[M] | None":
        """Return the shard of `key`, or None if it is not loaded. A loaded shard stays loaded."""
        shard = self._shards.get(self.shard_of(key))
        return shard if shard is not None and shard.is_loaded else None

    def is_free(self, shard: "Shard[M]") -> bool:
        """Return whether a batch may be appended to the shard now, without waiting for the end of the turn."""
        if self._is_closed or shard.deferred:
            return False
        return self._call_soon is None or not self._may_defer(shard)

    def append_batch(self, shard: "Shard[M]", batch: memoryview, header: BatchHeader, now_ms: int) -> bool:
        """Append a batch to a free shard. Returns False if it cannot be appended. The caller applies its records."""
        try:
            shard.end_offset, shard.committed_offset = self._log.append_batch(shard.index, batch, header, now_ms)
        except (StorageError, KafkaError, LookupError):
            return False
        return True

    def on_committed(self, shard: "Shard[M]", done: Done) -> None:
        """Call `done` when all records that are appended to the shard now are committed, or with the error."""
        self._log.on_committed(shard.index, shard.end_offset, done)

    def end_transaction(
        self,
        shard: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        done: Done,
    ) -> None:
        """Append the marker that ends a producer's transaction in this shard. Calls `done` when the marker is on disk.

        A shard that is not loaded is loaded first. After `done(None)`, the shard has no pending records of the
        transaction.
        """
        marker = _PendingMarker(ProducerIdAndEpoch(producer_id, producer_epoch), coordinator_epoch, is_commit, done)
        if not 0 <= shard < self._shard_count:
            done(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"shard {shard} does not exist"))
            return
        found = self._loaded_shard(shard)
        if not isinstance(found, ErrorCode):
            self._append_marker(found, marker)
        elif found is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and self._has_room_for_marker(shard):
            self._shards[shard].pending_markers.append(marker)
        else:
            done(KafkaError(found))

    def submit_internal(self, key: str, command: Command[Any]) -> None:
        """Run a command whose answer is not used. Does nothing if the shard is not loaded."""
        shard = self._shards.get(self.shard_of(key))
        if shard is not None and shard.is_loaded and not self._is_closed:
            self._run(shard, command)

    def machines(self) -> Iterator[M]:
        """Return the state machines of the loaded shards."""
        return (shard.machine for shard in self._shards.values() if shard.is_loaded)

    def waiting_count(self) -> int:
        """Return the number of commands that have not been answered yet."""
        return sum(len(shard.waiting) for shard in self._shards.values())

    def close(self) -> None:
        """Stop the timers and answer all waiting commands with NOT_COORDINATOR."""
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
            _refuse_pending_markers(shard, ErrorCode.NOT_COORDINATOR)

    # Loading

    def load(self, index: int) -> None:
        """Start to load a shard, unless it is already loading or loaded."""
        self._loaded_shard(index)

    def _loaded_shard(self, index: int) -> Shard[M] | ErrorCode:
        if self._is_closed:
            return ErrorCode.NOT_COORDINATOR
        shard = self._shards.get(index)
        if shard is None:
            shard = self._shards[index] = Shard(index, self._new_machine())
            self._loading.append(shard)
            if self._replay_timer is None:
                self._replay_turn()
        if shard.is_loaded:
            return shard
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if index in self._shards else ErrorCode.COORDINATOR_NOT_AVAILABLE

    def _replay_turn(self) -> None:
        """Replay records of the next shard for one turn. Schedule another turn if any shard is still loading."""
        shard = self._loading.popleft()
        try:
            if not self._replay(shard):
                self._loading.append(shard)
        finally:
            if self._loading:
                self._replay_timer = self._call_later(REPLAY_PAUSE_SECONDS, self._replay_turn)
            else:
                self._replay_timer = None

    def _replay(self, shard: Shard[M]) -> bool:
        """Apply records of a shard for one turn. Return True if its replay has ended, by success or failure."""
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
                    apply_transactional(shard.machine, one)
                if self._clock.monotonic() >= turn_end:
                    return False
        except Exception:
            # Do not serve a shard that may lack a record. The next request for the shard loads it again.
            logger.exception("coordinator shard %d cannot be loaded", shard.index)
            del self._shards[shard.index]
            _refuse_pending_markers(shard, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return True
        shard.replay = None
        shard.is_loaded = True
        shard.machine.loaded(self._moment())
        self._arm(shard)
        pending_markers, shard.pending_markers = shard.pending_markers, []
        for marker in pending_markers:
            self._append_marker(shard, marker)
        return True

    def _has_room_for_marker(self, index: int) -> bool:
        return len(self._shards[index].pending_markers) < WAITING_COMMANDS_MAX

    # Decisions

    def _moment(self) -> Moment:
        return Moment(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    def _run(self, shard: Shard[M], command: Command[Any]) -> None:
        machine = shard.machine
        can_share_append = self._call_soon is not None and machine.can_share_append(command)
        if shard.deferred and not can_share_append:
            self._append_deferred(shard)
        clock = self._clock
        moment = Moment(int(clock.monotonic() * 1000), clock.now_ms())
        try:
            result = machine.step(command, moment)
            if can_share_append and result.records and self._may_defer(shard):
                self._defer(shard, _Decision(command, result))
            else:
                self._carry_out(shard, command, result, moment)
        finally:
            self._arm(shard)

    def _carry_out(self, shard: Shard[M], command: Command[Any], result: Result, moment: Moment) -> None:
        replies, effects, reruns = result.replies, result.effects, result.reruns
        if result.records:
            try:
                if result.transaction is None:
                    shard.end_offset = self._log.append(shard.index, result.records, moment.wall_ms)
                else:
                    shard.end_offset = self._log.append_pending(
                        shard.index, result.transaction, result.records, moment.wall_ms
                    )
            except (StorageError, KafkaError, LookupError) as error:
                code = _append_error(shard, error)
                # Also refuse the command if the decision was to let it wait: the records that would lead to its answer
                # were not stored.
                refused = dict.fromkeys((*(reply.command for reply in replies), command))
                replies = [Reply(one, one.refused(code)) for one in refused]
                effects, reruns = [], ()
            else:
                apply_result(shard.machine, result)
        if replies or effects:
            self._answer(shard, replies, effects)
        for one in reruns:
            if one in shard.waiting:
                self._run_in_background(shard, one)

    def _answer(self, shard: Shard[M], replies: Sequence[Reply], effects: Sequence[Any]) -> None:
        """Send replies and carry out effects when all records that are appended now are committed."""
        end_offset = shard.end_offset
        if end_offset > shard.committed_offset:
            shard.committed_offset = self._log.committed_offset(shard.index)
        if len(replies) == 1 and not effects and end_offset <= shard.committed_offset:
            # The result is the same as that of `_release`. Most decisions have a single reply.
            (only,) = replies
            reply = shard.waiting.pop(only.command, None)
            if reply is not None:
                reply(only.answer)
            return
        answers = _waiting_answers(shard, replies)
        if end_offset > shard.committed_offset:
            call = partial(self._release, shard, end_offset, answers, effects)
            self._log.on_committed(shard.index, end_offset, call)
        else:
            # All records are committed: the replayed ones, and those that were appended after the replay.
            self._release(shard, end_offset, answers, effects, None)

    def _release(
        self,
        shard: Shard[M],
        end_offset: int,
        answers: list[_Answer],
        effects: Sequence[Any],
        error: KafkaError | None,
    ) -> None:
        if error is None and end_offset > shard.committed_offset:
            shard.committed_offset = end_offset
        for reply, command, answer in answers:
            # On an error, the records may be lost, so the client must not get the answer.
            reply(answer if error is None else command.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        if effects and self._on_effect is not None and not self._is_closed:
            for effect in effects:
                self._on_effect(effect, error)

    # Decisions of one event-loop turn that share an append

    def _may_defer(self, shard: Shard[M]) -> bool:
        """Return True if a command that can share an append was already appended to the shard in this turn.

        Otherwise the caller must append its records immediately. The first such call of a turn schedules `_end_turn`.
        """
        if shard.turn == self._turn:
            return True
        shard.turn = self._turn
        if not self._is_turn_open and self._call_soon is not None:
            self._is_turn_open = True
            self._call_soon(self._end_turn)
        return False

    def _defer(self, shard: Shard[M], decision: _Decision) -> None:
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

    def _append_deferred(self, shard: Shard[M]) -> None:
        """Append the records of the deferred decisions as one batch, or separately if the batch cannot be appended."""
        decisions, shard.deferred, shard.deferred_records = shard.deferred, [], 0
        if not decisions or self._is_closed:
            return
        moment = self._moment()
        try:
            if not self._append_together(shard, decisions, moment):
                for command, result in decisions:
                    self._carry_out(shard, command, result, moment)
        except Exception:
            # The exception must not reach the caller, which handles another command or several shards.
            logger.exception("coordinator shard %d: deferred commands failed", shard.index)
            for command, _ in decisions:
                self._answer_failed(shard, command)

    def _append_together(self, shard: Shard[M], decisions: Sequence[_Decision], moment: Moment) -> bool:
        if len(decisions) == 1:
            return False
        records = [record for _, result in decisions for record in result.records]
        try:
            shard.end_offset = self._log.append(shard.index, records, moment.wall_ms)
        except (StorageError, KafkaError, LookupError):
            # The batch may be too large although the records of each decision are not. If the disk failed, the
            # separate appends fail too, and each command is answered with the error.
            return False
        replies: list[Reply] = []
        for _, result in decisions:
            apply_result(shard.machine, result)
            replies += result.replies
        self._answer(shard, replies, ())
        return True

    def _answer_failed(self, shard: Shard[M], command: Command[Any]) -> None:
        reply = shard.waiting.pop(command, None)
        if reply is not None:
            reply(command.refused(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _run_in_background(self, shard: Shard[M], command: Command[Any]) -> None:
        """Run a command outside a client's request. Log an exception and answer the waiting client with an error."""
        try:
            self._run(shard, command)
        except Exception:
            # Continue, because the caller has further commands to run.
            logger.exception("coordinator shard %d: a command failed", shard.index)
            self._answer_failed(shard, command)

    def _append_marker(self, shard: Shard[M], marker: _PendingMarker) -> None:
        self._append_deferred(shard)
        transaction, coordinator_epoch, is_commit, done = marker
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
        apply_transactional(shard.machine, TransactionEnd(transaction.producer_id, is_commit))
        self._arm(shard)

        def committed(error: KafkaError | None) -> None:
            if error is None and end_offset > shard.committed_offset:
                shard.committed_offset = end_offset
            done(error)

        self._log.on_synced(shard.index, end_offset, committed)

    # Time

    def _arm(self, shard: Shard[M]) -> None:
        """Set the shard's timer to the shard's next deadline or an earlier time. An early timer is harmless."""
        wake_ms = shard.machine.wake_ms()
        if self._is_closed or wake_ms is None or (shard.armed_ms is not None and shard.armed_ms <= wake_ms):
            return
        if shard.timer is not None:
            shard.timer.cancel()
        shard.armed_ms = wake_ms
        delay_ms = max(0, wake_ms - self._moment().steady_ms)
        shard.timer = self._call_later(delay_ms / 1000, lambda: self._on_timer(shard))

    def _on_timer(self, shard: Shard[M]) -> None:
        shard.timer = None
        shard.armed_ms = None
        for command in shard.machine.due(self._moment().steady_ms):
            self._run_in_background(shard, command)
        self._arm(shard)


def _waiting_answers(shard: Shard[Any], replies: Sequence[Reply]) -> list[_Answer]:
    """Return the answers of those commands that still wait, and remove the commands from the waiting ones.

    A command no longer waits if it was answered with an error because its decision raised an exception.
    """
    answers = []
    for one in replies:
        reply = shard.waiting.pop(one.command, None)
        if reply is not None:
            answers.append((reply, one.command, one.answer))
    return answers


def _append_error(shard: Shard[Any], error: Exception) -> ErrorCode:
    """Return the error code for clients whose records could not be appended."""
    if isinstance(error, InvalidProducerEpoch):
        # This is not a failure of the log: a newer producer has fenced this client.
        return ErrorCode.INVALID_PRODUCER_EPOCH
    # A missing topic is not logged: the topic is created at the first FindCoordinator request.
    if not isinstance(error, LookupError):
        logger.exception("coordinator shard %d cannot append", shard.index)
    # A retry cannot succeed for a record that is too large, so its error must not be retriable.
    is_too_large = (isinstance(error, KafkaError) and error.code is ErrorCode.MESSAGE_TOO_LARGE) or (
        isinstance(error, StorageError) and code_of(error) is ErrorCode.MESSAGE_TOO_LARGE
    )
    return ErrorCode.UNKNOWN_SERVER_ERROR if is_too_large else ErrorCode.COORDINATOR_NOT_AVAILABLE


def _refuse_pending_markers(shard: Shard[Any], code: ErrorCode) -> None:
    pending_markers, shard.pending_markers = shard.pending_markers, []
    for marker in pending_markers:
        marker.done(KafkaError(code))
