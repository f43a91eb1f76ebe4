"""Text scenarios: commands to a world, and what it prints.

A scenario is a file of blocks. A block has command lines, a line `----` and the expected output. Lines that begin with
`#` are comments. Set KWIRE_RECORD=1 to write the output that the commands have now; then read the difference.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath

from msgspec.structs import replace

from kwire.cluster.core.control import SegmentState
from kwire.cluster.core.entries import INDEX_MAX, Entry, Kind, Position, Range, Run, joined, run_of
from kwire.cluster.core.messages import (
    Body,
    Close,
    Copy,
    Drop,
    Entries,
    Fetched,
    Finish,
    Incarnation,
    Message,
    Peek,
    Peeked,
    Read,
    Sealed,
    SegmentId,
    Stale,
    Store,
    Stored,
    TrimBefore,
)
from kwire.cluster.core.policies import Gaps, Limits, Path, Policy, Topology
from kwire.cluster.core.quorum import Quorum
from kwire.cluster.core.reader.quorum_read import acknowledged
from kwire.cluster.core.store.replica import ProtocolViolation
from tests.cluster.core.world import STREAM, World

_OPTION = re.compile(r"\w+=")
_ENTRY = re.compile(r"([ehb])\((\d+)\)(?:=(\w+))?(?:/(\d+))?@(\d+)")
LETTERS = {Kind.EVENT: "e", Kind.HOLE: "h", Kind.BRIDGE: "b"}


def blocks(text: str) -> Iterator[tuple[list[str], str]]:
    """The commands and the expected output of each block."""
    for part in text.split("\n\n"):
        commands, _, expected = part.strip("\n").partition("\n----")
        yield commands.splitlines(), expected.strip("\n")


def play(path: FilePath, *, record: bool) -> list[tuple[str, str]]:
    """Run a scenario. Returns the expected and the actual output of each block; with `record` writes the file anew."""
    script = Script()
    results = []
    recorded = []
    for commands, expected in blocks(path.read_text()):
        lines = [line for command in commands if not command.startswith("#") for line in script.run(command)]
        actual = "\n".join(lines)
        results.append((expected, actual))
        recorded.append("\n".join([*commands, "----", actual] if any(map(_is_command, commands)) else commands))
    if record:
        path.write_text("\n\n".join(part.rstrip("\n") for part in recorded) + "\n")
    return results


def _is_command(line: str) -> bool:
    return not line.startswith("#")


class Script:
    """Runs commands in one world."""

    def __init__(self) -> None:
        self.world: World | None = None
        self._peeked: list[Peeked] = []

    def run(self, line: str) -> list[str]:
        name, *words = line.split()
        command: Callable[..., list[str]] = getattr(self, f"do_{name.replace('-', '_')}")
        options = dict(word.split("=", 1) for word in words if _OPTION.match(word))
        try:
            return command(*[word for word in words if not _OPTION.match(word)], **options)
        except (ValueError, ProtocolViolation) as error:
            return [f"{type(error).__name__}: {error}"]

    @property
    def _world(self) -> World:
        assert self.world is not None, "a scenario begins with the command `world`"
        return self.world

    # --- commands

    def do_world(self, *stores: str, **options: str) -> list[str]:
        """Stores, and options: N, R, W, gaps, path, topology, sets (copy sets of the segments), and limits."""
        policy = Policy(
            quorum_of(int(options.pop("N", len(stores))), options.pop("R", ""), options.pop("W", "")),
            Gaps(options.pop("gaps", "refused")),
            Path(options.pop("path", "serial")),
            Topology(options.pop("topology", "star")),
        )
        # The copy sets of the segments 1, 2, …, from the beginning again after the last one.
        sets = [tuple(one.split(",")) for one in options.pop("sets", ",".join(stores)).split(";")]
        limits = Limits(**{key: int(value) for key, value in options.items()})
        self.world = World([sets[-1], *sets[:-1]], policy, limits)
        return []

    def do_elect(self, client: str) -> list[str]:
        self._world.elect(client)
        return [f"{client} leads with epoch {self._world.writers[client].epoch}"]

    def do_append(self, client: str, *payloads: str) -> list[str]:
        positions = [self._world.append(client, payload.encode()) for payload in payloads]
        return [" ".join("refused" if one is None else f"{one[0]}:{one[1]}" for one in positions)]

    def do_roll(self, client: str) -> list[str]:
        self._world.roll(client)
        return []

    def do_crash(self, client: str) -> list[str]:
        del self._world.writers[client]
        return []

    def do_restart(self, *stores: str, mode: str = "") -> list[str]:
        for store in stores:
            self._world.start_store(store, is_limbo=mode == "limbo")
        return []

    def do_damage(self, store: str, first: str, last: str, segment: str = "1") -> list[str]:
        """The store starts again and finds entries that it can not read."""
        replica = self._world.storage[store].replicas[SegmentId(STREAM, int(segment))]
        for index in range(int(first), int(last) + 1):
            replica.entries.pop(index, None)
        replica.unknown = (Range(int(first), int(last)),)
        self._world.start_store(store)
        return []

    def do_lose(self, store: str, index: str, segment: str = "1") -> list[str]:
        """The store starts again and lacks an entry, without a sign of damage: more failed than the policy allows."""
        del self._world.storage[store].replicas[SegmentId(STREAM, int(segment))].entries[int(index)]
        self._world.start_store(store)
        return []

    def do_tick(self, milliseconds: str) -> list[str]:
        self._world.tick(int(milliseconds))
        return []

    def do_deliver(self, **wanted: str) -> list[str]:
        """Deliver the messages that are in the bag now, in order, and print them."""
        return [show(message) for message in self._world.deliver_some(**wanted)]

    def do_repeat(self, **wanted: str) -> list[str]:
        """Deliver messages and keep them in the bag: the network doubles them."""
        messages = self._world.deliver_some(**wanted)
        self._world.bag += messages
        return [show(message) for message in messages]

    def do_drop(self, **wanted: str) -> list[str]:
        return [show(message) for message in self._world.take(**wanted)]

    def do_settle(self) -> list[str]:
        self._world.settle()
        return []

    def do_repair(self) -> list[str]:
        self._world.repair()
        return []

    def do_send(
        self, kind: str, target: str, *sources: str, segment: str = "1", end: str = "0", epoch: str = "1"
    ) -> list[str]:
        """A message of the master: Copy with its sources, Finish, Drop, or TrimBefore with the entry `end`."""
        where = SegmentId(STREAM, int(segment))
        bodies: dict[str, Body] = {
            "Drop": Drop(where, self._world.stores[target].incarnation, 1),
            "Finish": Finish(where, int(end), int(epoch)),
            "Copy": Copy(where, int(end), int(epoch), sources),
            "TrimBefore": TrimBefore(where, int(end)),
        }
        self._world.bag.append(Message("master", target, bodies[kind]))
        return []

    def do_forge(
        self, kind: str, source: str, target: str, *entries: str, segment: str = "1", end: str = "0", epoch: str = "1"
    ) -> list[str]:
        """A message that no correct sender sends. It arrives at once, and what it causes is printed."""
        where, store = SegmentId(STREAM, int(segment)), self._world.stores.get(target)
        life = Incarnation(0, 1) if store is None else store.incarnation
        content = tuple(map(entry_of, entries))
        bodies: dict[str, Body] = {
            "Store": Store(where, int(epoch), life, 0, 0, len(content), content, leader=source),
            "Close": Close(where, int(epoch), life, int(end)),
            "Sealed": Sealed(where, int(epoch), life, 0, tuple(map(run_of, content)), ()),
        }
        before = list(self._world.bag)
        self._world.deliver(Message(source, target, bodies[kind]))
        return [show(message) for message in self._world.bag if message not in before]

    def do_tamper(self, store: str, index: str, payload: str, segment: str = "1") -> list[str]:
        """The disk returns another payload than was written, without a sign of damage."""
        entries = self._world.storage[store].replicas[SegmentId(STREAM, int(segment))].entries
        entries[int(index)] = replace(entries[int(index)], payload=payload.encode())
        return []

    # --- what is seen

    def do_store(self, *stores: str, segment: str = "1") -> list[str]:
        """What the replicas hold: kind, index, birth epoch if it differs, and the stamp after @."""
        lines = []
        for store in stores:
            replica = self._world.stores[store].replicas.get(SegmentId(STREAM, int(segment)))
            if replica is None:
                lines.append(f"{store}: none")
                continue
            stored = self._world.storage[store].replicas[SegmentId(STREAM, int(segment))]
            assert tuple(joined(run_of(stored.entries[index]) for index in sorted(stored.entries))) == tuple(
                replica.runs
            )
            parts = [show_entry(stored.entries[index]) for index in sorted(stored.entries)]
            parts += [f"unknown({show_range(one)})" for one in replica.unknown]
            state = " closed" if replica.closed_end else ""
            state += f" trimmed before {replica.first}" if replica.first > 1 else ""
            lines.append(
                f"{store}: {' '.join(parts) or '-'} | sealed {replica.sealed_epoch} matched {replica.matched}"
                f" acked {replica.acked} serves {replica.limit}{state}"
            )
        return lines

    def do_acked(self, client: str) -> list[str]:
        return [" ".join(f"{number}:{index}" for number, index in self._world.acked[client]) or "nothing"]

    def do_leader(self, client: str) -> list[str]:
        writer = self._world.writers[client]
        return [f"epoch {writer.epoch}" if writer.epoch else "does not lead"]

    def do_recovery(self, client: str) -> list[str]:
        recovery = self._world.writers[client]._recovery
        if recovery is None:
            return ["none"]
        reason = ""
        if recovery.replicator is None:
            reason = f", waits for slot {recovery.undecided.index}" + (" LOST" if recovery.undecided.is_lost else "")
        return [f"segment {recovery.segment.number} {recovery.phase}{reason}"]

    def do_segments(self) -> list[str]:
        return [
            f"{one.number} {one.state} on {','.join(member.store for member in one.copy_set)}"
            + (f" base {one.base}" if one.base is not None else "")
            + (f" end {one.end_index} by epoch {one.end_epoch}" if one.state is SegmentState.SEALED else "")
            for one in self._world.master.segments.values()
        ]

    def do_read(self, reader: str) -> list[str]:
        """Read from the beginning with a new reader: offset=payload, holes as offset=hole, after the gaps."""
        self._world.start_reader(reader)
        self._world.read()
        del self._world.readers[reader]
        found = [
            f"trimmed({show_position(one.first)} to {show_position(one.following)})" for one in self._world.gaps[reader]
        ]
        found += [
            f"{one.offset}={'hole' if one.payload is None else one.payload.decode()}"
            for one in self._world.delivered[reader]
        ]
        return [" ".join(found) or "nothing"]

    def do_quorum_read(self, *stores: str, segment: str = "1", first: str = "1") -> list[str]:
        """Read from several replicas and compute what is acknowledged."""
        where = SegmentId(STREAM, int(segment))
        answers = []
        for store in stores:
            output = self._world.stores[store].step(Message("q", store, Peek(where, int(first))), self._world.now)
            messages = [*output.messages, *(self._world.storage[store].read(read) for read in output.reads)]
            answers += [message.body for message in messages if isinstance(message.body, Peeked)]
        entries = acknowledged(int(first), answers, self._world.policy.quorum)
        return [" ".join(map(show_entry, entries)) or "nothing"]


def quorum_of(replicas: int, reads: str, writes: str) -> Quorum:
    """The quorum with the given numbers: without any it is a majority."""
    if reads:
        return Quorum.nrw(replicas, int(reads), int(writes))
    return Quorum(replicas, int(writes)) if writes else Quorum.majority(replicas)


# --- words for messages


def entry_of(text: str) -> Entry:
    """The entry that `show_entry` shows so."""
    parts = _ENTRY.fullmatch(text)
    assert parts is not None, text
    letter, index, payload, birth, stamp = parts.groups()
    kind = next(kind for kind, one in LETTERS.items() if one == letter)
    return Entry(int(index), kind, int(birth or stamp), int(stamp), (payload or "").encode())


def show_position(one: Position) -> str:
    return f"{one.segment_number}:{one.entry_index}"


def show_range(one: Range | Run) -> str:
    if one.last == INDEX_MAX:
        return f"{one.first}-"
    return str(one.first) if one.first == one.last else f"{one.first}-{one.last}"


def show_entry(entry: Entry) -> str:
    birth = f"/{entry.birth_epoch}" if entry.birth_epoch != entry.stamp_epoch else ""
    text = f"={entry.payload.decode()}" if entry.kind is Kind.EVENT else ""
    return f"{LETTERS[entry.kind]}({entry.index}){text}{birth}@{entry.stamp_epoch}"


def show_run(run: Run) -> str:
    birth = f"/{run.birth_epoch}" if run.birth_epoch != run.stamp_epoch else ""
    return f"{LETTERS[run.kind]}({show_range(run)}){birth}@{run.stamp_epoch}"


def show(message: Message) -> str:
    body = message.body
    facts: list[str] = []
    match body:
        case Store():
            facts = [*map(show_entry, body.entries), *(f"restamp {show_run(run)}" for run in body.restamped)]
            facts += [f"matched {body.matched}"] if body.matched else []
            facts += [f"acked {body.acked}"]
            facts += [f"forward {','.join(hop.store for hop in body.forward)}"] if body.forward else []
        case Stored():
            facts = [f"matched {body.matched}", *(["gap"] if body.has_gap else [])]
        case Sealed():
            facts = [*map(show_run, body.runs), *(f"unknown({show_range(one)})" for one in body.unknown)]
            facts += [f"acked {body.acked}"]
        case Stale():
            facts = [f"sealed {body.sealed_epoch}"]
        case Read():
            facts = [show_range(Range(body.first, body.last))]
        case Entries() | Fetched():
            facts = list(map(show_entry, body.entries))
        case Close():
            facts = [f"end {body.end}"]
    epoch = getattr(body, "epoch", None)
    words = [f"{message.source}>{message.target}", type(body).__name__, *([f"epoch {epoch}"] if epoch else [])]
    return " ".join([*words, *([": " + ", ".join(facts)] if facts else [])]).replace(" : ", ": ")
