"""The language of `scenarios/*.txt`, in blocks like those of groups: commands, a line of dashes, the trace they left.

    given Ongoing
    end A commit producer=1000 epoch=1 v2
    ----
    0 append x PrepareCommit 1000/2 [t:0]
    0 A NONE 1000/2
    0 markers commit 1000/2 [t:0]

`given` builds a new world in which the transactional id x stands so, without a trace: in steps as a producer takes
them, or with `epoch=` from one record; settings may follow. Requests (`init`, `add`, `verify`, `end`, `describe`) have
a name, by which their answer appears; one that needs a producer id gets the next one and is asked again. Other
commands: `list`, `mark` (markers are written, except `failed=`), `stray` (the same, unasked), `advance <ms>`, `show`,
`restart`, `load`, `fail` and `heal` (appends), `hold` and `release` (commits), `version <n>` (of the server),
`settings` (a new world too).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kwire.coordinator.transaction.commands import (
    AddPartitions,
    DescribeAnswer,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListedTransaction,
    ListTransactions,
    MarkersWritten,
    ProducerAnswer,
    VerifyPartitions,
)
from kwire.coordinator.transaction.coordinator import HasTransactionalId
from kwire.coordinator.transaction.marker_effect import WriteMarkers
from kwire.coordinator.transaction.records import decode_record, encode_record
from kwire.coordinator.transaction.states import State, TopicPartition, TransactionMetadata
from kwire.errors import ErrorCode
from tests.coordinator.transaction.pairs import Pair, Pairs
from tests.coordinator.transaction.world import FIRST_FRESH_ID, World

DIVIDER = "----"
Arguments = dict[str, str]
TIMEOUT_MS = 60_000


def rerun(path: Path, pairs: set[Pair] | None = None) -> str:
    """The file as it would be if its traces were recorded now; what was tried is added to `pairs`."""
    scenario = Scenario()
    blocks = []
    for block in path.read_text().strip().split("\n\n"):
        lines = block.split("\n")
        head = lines[: lines.index(DIVIDER)] if DIVIDER in lines else lines
        commands = [line for line in head if not line.startswith("#")]
        trace = [line for command in commands for line in scenario.run(command)]
        blocks.append("\n".join([*head, *([DIVIDER, *trace] if commands else [])]))
    scenario.finish()
    if pairs is not None:
        pairs |= scenario.pairs.tried
    return "\n\n".join(blocks) + "\n"


class Scenario:
    def __init__(self) -> None:
        self.pairs = Pairs()
        self._trace: list[str] = []
        self._open: set[str] = set()
        self._world = self._new_world()

    def _new_world(self, **settings: int) -> World:
        world = World(**settings)
        world.on_markers = self._note_markers
        self.pairs.watch(world)
        return world

    def run(self, line: str) -> list[str]:
        word, *rest = line.split()
        self._trace = []
        run: Callable[[list[str]], None] = getattr(self, f"_{word}")
        run(rest)
        self._note_appends()
        return self._trace

    def finish(self) -> None:
        """Whatever happened, a restart would find what the coordinator knows."""
        assert self._world.durable() == self._world.replayed()

    # The world

    def _settings(self, rest: list[str]) -> None:
        self.finish()
        self._open.clear()
        self._world = self._new_world(**{name: int(value) for name, value in _arguments(rest).items()})

    def _given(self, rest: list[str]) -> None:
        wanted, asked = rest[0], _arguments(rest[1:])
        version, epoch = asked.pop("version", "2"), asked.pop("epoch", None)
        self._settings([f"{name}={value}" for name, value in {"completion_wait_ms": "0", **asked}.items()])
        # Each shard is loaded, so that nothing has to be before a command is decided.
        self._world.transactions.load()
        self._world.timers.advance(100)
        self._world.clock.advance(900)
        self._world.version = int(version)
        if wanted == "nothing":
            return
        if epoch is not None:
            self._write(wanted, int(epoch))
        else:
            self._walk_to(wanted, is_v2=self._world.version >= 2)
        self._world.log.take_appended()
        self._trace.clear()
        self.pairs.forget()

    def _write(self, wanted: str, epoch: int) -> None:
        """As if a coordinator before had left it so."""
        world = self._world
        (state,) = (one for one in State if one.kafka_name == wanted)
        is_open = state in (State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT)
        metadata = TransactionMetadata(
            state=state,
            producer_id=FIRST_FRESH_ID - 1,
            producer_epoch=epoch,
            previous_producer_id=FIRST_FRESH_ID - 1,
            timeout_ms=TIMEOUT_MS,
            partitions=frozenset({("t", 0)}) if is_open else frozenset(),
            start_ms=world.clock.now_ms() if is_open else -1,
            update_ms=world.clock.now_ms(),
            version=world.version,
        )
        shard = world.transactions.shard_of("x")
        world.log.append(shard, [encode_record("x", metadata, world.version)], world.clock.now_ms())
        world.restart()
        world.transactions.load()
        world.timers.advance(100)

    def _walk_to(self, wanted: str, is_v2: bool) -> None:
        world, flag = self._world, ["v2"] if is_v2 else []
        self._init(["-"])
        present = f"producer={FIRST_FRESH_ID}", "epoch=0"
        self._init(["-", *present])
        present = f"producer={FIRST_FRESH_ID}", "epoch=1"
        if wanted == "Empty":
            return
        self._add(["-", *present, "partitions=t:0", *flag])
        if wanted == "Ongoing":
            return
        self._end(["-", wanted.removeprefix("Prepare").removeprefix("Complete").lower(), *present, *flag])
        if wanted.startswith("Complete"):
            world.mark()
        now = world.metadata()
        assert now is not None
        assert now.state.kafka_name == wanted

    def _advance(self, rest: list[str]) -> None:
        self._world.timers.advance(int(rest[0]))

    def _restart(self, rest: list[str]) -> None:
        """Also loads what is there, as a node does."""
        before = self._world.durable()
        self.pairs.note_event("restart")
        self._world.restart()
        assert self._world.replayed() == before
        self._load([])

    def _load(self, rest: list[str]) -> None:
        self._world.transactions.load()
        self._world.timers.advance(100)

    def _fail(self, rest: list[str]) -> None:
        self._world.log.is_failing = True

    def _heal(self, rest: list[str]) -> None:
        self._world.log.is_failing = False

    def _hold(self, rest: list[str]) -> None:
        self._world.log.is_holding = True

    def _release(self, rest: list[str]) -> None:
        self._world.log.release()

    def _version(self, rest: list[str]) -> None:
        self._world.version = int(rest[0])

    def _show(self, rest: list[str]) -> None:
        for transactional_id, metadata in sorted(self._world.durable().items()):
            self._trace.append(f"{transactional_id} {_show_standing(metadata)}")
        if not self._world.durable():
            self._trace.append("nothing")

    def _mark(self, rest: list[str]) -> None:
        self._world.mark(_partitions(_arguments(rest).get("failed", "")))

    def _stray(self, rest: list[str]) -> None:
        """Somebody tells of markers that were not asked for, or not now."""
        asked = _arguments(rest)
        command = MarkersWritten(
            transactional_id="x",
            producer_id=int(asked["producer"]),
            producer_epoch=int(asked["epoch"]),
            failed=frozenset(_partitions(asked.get("failed", ""))),
        )
        self._world.transactions._runtime.submit_internal("x", command)

    # Requests

    def _init(self, rest: list[str]) -> None:
        asked = _arguments(rest[1:])

        def command(fresh_producer_id: int) -> InitProducer:
            return InitProducer(
                transactional_id=asked.get("id", "x"),
                timeout_ms=int(asked.get("timeout", str(TIMEOUT_MS))),
                producer_id=int(asked.get("producer", "-1")),
                producer_epoch=int(asked.get("epoch", "-1")),
                fresh_producer_id=fresh_producer_id,
            )

        self._ask_producer(rest[0], command)

    def _add(self, rest: list[str]) -> None:
        asked = _arguments(rest[1:])
        command = AddPartitions(
            transactional_id=asked.get("id", "x"),
            producer_id=int(asked["producer"]),
            producer_epoch=int(asked["epoch"]),
            partitions=_partitions(asked["partitions"]),
            is_v2="v2" in asked,
        )
        self._ask(rest[0], command)

    def _verify(self, rest: list[str]) -> None:
        asked = _arguments(rest[1:])
        command = VerifyPartitions(
            transactional_id=asked.get("id", "x"),
            producer_id=int(asked["producer"]),
            producer_epoch=int(asked["epoch"]),
            partitions=_partitions(asked["partitions"]),
        )
        self._ask(rest[0], command)

    def _end(self, rest: list[str]) -> None:
        asked = _arguments(rest[2:])

        def command(fresh_producer_id: int) -> EndTransaction:
            return EndTransaction(
                transactional_id=asked.get("id", "x"),
                producer_id=int(asked["producer"]),
                producer_epoch=int(asked["epoch"]),
                is_commit={"commit": True, "abort": False}[rest[1]],
                is_v2="v2" in asked,
                fresh_producer_id=fresh_producer_id,
            )

        self._ask_producer(rest[0], command)

    def _describe(self, rest: list[str]) -> None:
        self._ask(rest[0], DescribeTransaction(transactional_id=_arguments(rest[1:]).get("id", "x")))

    def _list(self, rest: list[str]) -> None:
        """The transactions of all shards together."""
        asked = _arguments(rest)
        prefix = asked.get("prefix")
        found: list[ListedTransaction] = []
        self.pairs.note_event("list")
        for key in self._world.transactions.shard_keys:
            command = ListTransactions(
                transactional_id=key,
                states=frozenset(filter(None, asked.get("states", "").split(","))),
                producer_ids=frozenset(int(one) for one in filter(None, asked.get("producers", "").split(","))),
                duration_ms=int(asked.get("duration", "-1")),
                matches=None if prefix is None else lambda name: name.startswith(prefix),
            )
            self._world.transactions.submit(command, lambda answer: found.extend(answer.transactions))
        self._trace.extend(f"{one.transactional_id} {one.producer_id} {one.state}" for one in sorted(found))
        if not found:
            self._trace.append("none")

    # Trace

    def _ask_producer(self, name: str, command: Callable[[int], HasTransactionalId[ProducerAnswer]]) -> None:
        def then(answer: ProducerAnswer) -> None:
            if answer.needs_producer_id:
                self._trace.append(f"{self._world.now_ms} {name} needs a producer id")
                self._ask(name, command(self._world.fresh_producer_id()))

        self._ask(name, command(-1), then)

    def _ask(self, name: str, command: HasTransactionalId[Any], then: Callable[[Any], None] | None = None) -> None:
        assert name not in self._open, f"{name} still waits for an answer"
        self._open.add(name)

        def reply(answer: Any) -> None:
            self._open.remove(name)
            if isinstance(answer, ProducerAnswer) and answer.needs_producer_id:
                assert then is not None
                then(answer)
                return
            self._note_appends()
            self._trace.append(f"{self._world.now_ms} {name} {_show_answer(answer)}")

        self._world.transactions.submit(command, reply)

    def _note_markers(self, effect: WriteMarkers) -> None:
        self._note_appends()
        what = "commit" if effect.is_commit else "abort"
        told = f"{what} {effect.producer_id}/{effect.producer_epoch} {_show_partitions(effect.partitions)}"
        self._trace.append(f"{self._world.now_ms} markers {told}")

    def _note_appends(self) -> None:
        for key, value in self._world.log.take_appended():
            record = decode_record(key, value)
            assert record is not None
            shown = "forgotten" if record.metadata is None else _show_standing(record.metadata)
            self._trace.append(f"{self._world.now_ms} append {record.transactional_id} {shown}")


def _arguments(words: list[str]) -> Arguments:
    pairs = (word.partition("=") for word in words)
    return {name: value for name, _, value in pairs}


def _partitions(text: str) -> list[TopicPartition]:
    pairs = (one.partition(":") for one in text.split(",") if one)
    return [(topic, int(index)) for topic, _, index in pairs]


def _show_partitions(partitions: Any) -> str:
    return f"[{','.join(f'{topic}:{index}' for topic, index in sorted(partitions))}]"


def _show_standing(metadata: TransactionMetadata) -> str:
    parts = [metadata.state.kafka_name, f"{metadata.producer_id}/{metadata.producer_epoch}"]
    if metadata.partitions:
        parts.append(_show_partitions(metadata.partitions))
    if metadata.previous_producer_id != metadata.producer_id:
        parts.append(f"before={metadata.previous_producer_id}")
    if metadata.next_producer_id != -1:
        parts.append(f"next={metadata.next_producer_id}")
    return " ".join(parts)


def _show_answer(answer: object) -> str:
    match answer:
        case ProducerAnswer():
            is_good = answer.error is ErrorCode.NONE
            return f"NONE {answer.producer_id}/{answer.producer_epoch}" if is_good else answer.error.name
        case DescribeAnswer():
            if answer.error is not ErrorCode.NONE:
                return answer.error.name
            producer = f"{answer.producer_id}/{answer.producer_epoch}"
            return f"{answer.state} {producer} {_show_partitions(answer.partitions)} timeout={answer.timeout_ms}"
        case ErrorCode():
            return answer.name
        case list():
            return ",".join(one.name for one in answer)
    raise AssertionError(f"an answer nobody expected: {answer!r}")
