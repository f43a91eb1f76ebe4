"""Effects of decisions, and commands that are decided again."""

from msgspec import Struct

from kwire.coordinator.decisions import Command, Moment, Result
from kwire.coordinator.runtime import CoordinatorRuntime
from kwire.errors import ErrorCode, KafkaError
from tests.coordinator.world import MemoryLog, Timers, plain
from tests.support.clock import ManualClock


class Note(Struct, frozen=True, eq=False):
    """A command for a machine that only keeps what it is told."""

    text: str

    def refused(self, error: ErrorCode) -> str:
        return f"{self.text} {error.name}"


class Notebook:
    """Writes each note down, answers it, and has an effect; `again` waits until the next note is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.later: list[Note] = []

    def step(self, command: Note, moment: Moment) -> Result:
        result = Result()
        if command.text == "broken" and self.written:
            raise RuntimeError
        if command.text in ("again", "broken") and command not in self.later:
            self.later.append(command)
            return result
        result.reply(command, f"{command.text} after {len(self.written)}")
        result.effects.append(f"effect of {command.text}")
        if command not in self.later:
            result.records.append((command.text.encode(), b""))
            for one in self.later:
                result.rerun(one)
        return result

    def can_share_append(self, command: Note) -> bool:
        return False

    def apply(self, key: bytes, value: bytes | None) -> None:
        self.written.append(key)

    def loaded(self, moment: Moment) -> None: ...

    def wake_ms(self) -> int | None:
        return None

    def due(self, steady_ms: int) -> list[Command[object]]:
        return []


class NoteWorld:
    """One shard of notes; `seen` are answers and effects in the order in which they left."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        self.seen: list[str] = []
        clock = ManualClock()
        self.runtime: CoordinatorRuntime[Notebook] = CoordinatorRuntime(
            shard_count=1,
            new_machine=Notebook,
            log=self.log,
            clock=clock,
            call_later=Timers(clock).call_later,
            on_effect=lambda effect, error: self.seen.append(f"{effect} {error.code.name if error else 'is safe'}"),
        )

    def note(self, text: str) -> None:
        self.runtime.submit("any", Note(text), self.seen.append)


def test_effect_comes_when_its_decision_is_committed_and_behind_its_answer() -> None:
    world = NoteWorld()
    world.log.is_holding = True
    world.note("a")
    world.note("b")
    assert world.seen == []
    world.log.release()
    assert world.seen == ["a after 0", "effect of a is safe", "b after 1", "effect of b is safe"]


def test_effect_of_a_decision_that_may_not_survive_is_told_so() -> None:
    world = NoteWorld()
    world.log.is_holding = True
    world.note("a")
    world.log.release(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    assert world.seen == ["a COORDINATOR_NOT_AVAILABLE", "effect of a KAFKA_STORAGE_ERROR"]


def test_decision_that_cannot_be_appended_has_no_effect() -> None:
    world = NoteWorld()
    world.note("again")
    world.log.is_failing = True
    world.note("a")
    assert world.seen == ["a COORDINATOR_NOT_AVAILABLE"]
    assert world.runtime.waiting_count() == 1


def test_command_is_decided_anew_when_the_records_are_applied() -> None:
    world = NoteWorld()
    world.note("again")
    world.note("a")
    assert world.seen == ["a after 0", "effect of a is safe", "again after 1", "effect of again is safe"]
    # It has its answer; nobody asks for it a second time.
    world.note("b")
    assert world.seen[4:] == ["b after 1", "effect of b is safe"]


def test_command_that_breaks_down_when_it_is_decided_anew_is_answered() -> None:
    world = NoteWorld()
    world.note("broken")
    world.note("a")
    assert world.seen == ["a after 0", "effect of a is safe", "broken UNKNOWN_SERVER_ERROR"]
    assert world.runtime.waiting_count() == 0


def test_what_is_only_told_is_written_and_nobody_is_answered() -> None:
    world = NoteWorld()
    world.runtime.submit_internal("any", Note("early"))
    world.note("a")
    world.runtime.submit_internal("any", Note("b"))
    assert world.seen == ["a after 0", "effect of a is safe", "effect of b is safe"]
    world.runtime.close()
    world.runtime.submit_internal("any", Note("late"))
    assert [key for key, _ in plain(world.log.shards[0])] == [b"a", b"b"]


def test_nothing_has_an_effect_after_closing() -> None:
    world = NoteWorld()
    world.log.is_holding = True
    world.note("a")
    world.runtime.close()
    world.log.release()
    assert world.seen == ["a after 0"]
