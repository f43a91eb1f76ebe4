"""The runtime of a coordinator: decide -> append -> apply -> reply once committed.

The runtime owns the shards, one per partition of an internal topic. It knows nothing of groups or transactions: a
shard's state machine decides, and everything with an effect (the log, the clock, timers, waiting clients) is here.

Rules it keeps:
- a record is applied only after it was appended, in the order of the log, so replay gives the same state;
- a reply leaves only when everything appended to its shard before it is committed, also the reply of a mere read, so
  nobody is told of a state that a crash could take back;
- every command is answered exactly once;
- time enters a decision as a `Moment`; a deadline comes back as a command that the machine itself asked for.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from storage.errors import StorageError

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

A = TypeVar("A")
Answer_co = TypeVar("Answer_co", covariant=True)
KeyValue = tuple[bytes, bytes | None]


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
    """What a decision wants to happen: records to append, and answers to give once they are committed."""

    __slots__ = ("records", "replies")

    def __init__(self) -> None:
        self.records: list[KeyValue] = []
        self.replies: list[Reply] = []

    def reply(self, command: Command[A], answer: A) -> None:
        self.replies.append(Reply(command, answer))

    def refuse(self, command: Command[Any], error: ErrorCode) -> None:
        self.replies.append(Reply(command, command.refused(error)))


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


class CoordinatorLog(Protocol):
    """The internal topic, as far as a coordinator cares."""

    def append(self, shard: int, records: Sequence[KeyValue], now_ms: int) -> int:
        """Append as one batch; the next offset. Raises StorageError, KafkaError, or LookupError if there is no topic;
        then nothing was appended."""
        ...

    def on_committed(self, shard: int, offset: int, call: Callable[[KafkaError | None], None]) -> None:
        """Call when everything below `offset` is committed, at once if it is; with an error if it will not be."""
        ...

    def replay(self, shard: int) -> Iterator[KeyValue]: ...


class Timer(Protocol):
    def cancel(self) -> object: ...


CallLater = Callable[[float, Callable[[], None]], Timer]
M = TypeVar("M", bound=StateMachine)


class _Shard(Generic[M]):
    """One partition of the internal topic: its state, who waits for an answer, and its one timer."""

    __slots__ = (
        "armed_ms",
        "committed_offset",
        "end_offset",
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
        self.replay: Iterator[KeyValue] | None = None
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
    ) -> None:
        self._shard_count = shard_count
        self._new_machine = new_machine
        self._log = log
        self._clock = clock
        self._call_later = call_later
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
            for key, value in shard.replay:
                shard.machine.apply(key, value)
                if self._clock.monotonic() >= turn_end:
                    return False
        except Exception:
            # Better no coordinator than one that forgot a commit: the next request tries to load again.
            logger.exception("coordinator shard %d cannot be loaded", shard.index)
            del self._shards[shard.index]
            return True
        shard.replay = None
        shard.is_loaded = True
        shard.machine.loaded(self._moment())
        self._arm(shard)
        return True

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
        replies = result.replies
        if result.records:
            try:
                shard.end_offset = self._log.append(shard.index, result.records, moment.wall_ms)
            except (StorageError, KafkaError, LookupError) as error:
                # Without a topic nobody has looked for a coordinator yet: the answer says so, the log need not.
                if not isinstance(error, LookupError):
                    logger.exception("coordinator shard %d cannot append", shard.index)
                # What is too large stays so: a client that tries again for ever is not helped.
                is_too_large = isinstance(error, KafkaError) and error.code is ErrorCode.MESSAGE_TOO_LARGE
                code = ErrorCode.UNKNOWN_SERVER_ERROR if is_too_large else ErrorCode.COORDINATOR_NOT_AVAILABLE
                # Also who was to wait is told: what would have answered it later may not have come to be.
                refused = dict.fromkeys((*(reply.command for reply in replies), command))
                replies = [Reply(one, one.refused(code)) for one in refused]
            else:
                for key, value in result.records:
                    shard.machine.apply(key, value)
        if replies:
            # A command whose own step failed is not waiting any more, though the machine may still know it.
            waiting = [
                (reply, command, answer)
                for command, answer in replies
                if (reply := shard.waiting.pop(command, None)) is not None
            ]
            end_offset = shard.end_offset
            if end_offset > shard.committed_offset:
                self._log.on_committed(shard.index, end_offset, partial(_answer, shard, end_offset, waiting))
            else:
                # What was replayed is committed, and so is everything since then.
                _answer(shard, end_offset, waiting, None)

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
            try:
                self._run(shard, command)
            except Exception:
                # The deadlines of others are not to be forgotten for it.
                logger.exception("a deadline in coordinator shard %d", shard.index)
        self._arm(shard)


def _answer(
    shard: _Shard[Any],
    end_offset: int,
    waiting: list[tuple[Callable[[Any], None], Command[Any], Any]],
    error: KafkaError | None,
) -> None:
    if error is None and end_offset > shard.committed_offset:
        shard.committed_offset = end_offset
    for reply, command, answer in waiting:
        # Not committed: whether the decision survives is unknown, so nobody is told that it was taken.
        reply(answer if error is None else command.refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))


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
