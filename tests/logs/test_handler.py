"""The rate of repeated lines is bounded, and what is left out is counted."""

import io
import json
import logging
import random
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from kwire.errors import ErrorCode, KafkaError
from kwire.logs import repeat_limit
from kwire.logs.handler import LogHandler
from kwire.logs.line_formats import JSON, TEXT
from kwire.logs.repeat_limit import INTERVAL_SECONDS, KINDS_MAX, LINES_MAX, RepeatLimit
from tests.support.effort import repetitions

SEED = 24


def record(message: str, *values: object, logger: str = "kwire.test", level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord(logger, level, "", 0, message, values, None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.Logger("kwire.test")
    yield logger
    logger.handlers.clear()


def test_a_flood_of_one_kind_is_bounded_and_counted(log: logging.Logger) -> None:
    stream = io.StringIO()
    handler = LogHandler(stream, TEXT)
    log.addHandler(handler)
    for number in range(LINES_MAX + 5):
        log.warning("connection %d is refused", number)
    log.warning("another kind")
    handler.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == LINES_MAX + 2
    assert lines[-2].endswith("another kind")
    assert lines[-1].endswith(
        f"WARNING kwire.test: 5 more lines like this were left out within {INTERVAL_SECONDS:.0f} s: "
        "connection %d is refused"
    )


def test_a_flood_of_one_error_with_different_texts_is_bounded(log: logging.Logger) -> None:
    stream = io.StringIO()
    handler = LogHandler(stream, TEXT)
    log.addHandler(handler)
    for number in range(LINES_MAX + 5):
        try:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"name {number} of 100%")
        except KafkaError:
            log.exception("a command failed")
            log.exception("shard %d cannot append", number)
    handler.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2 * (LINES_MAX + 1)
    assert lines[0].endswith("ERROR kwire.test: a command failed: name 0 of 100%")
    assert lines[3].endswith("ERROR kwire.test: shard 1 cannot append: name 1 of 100%")


def test_lines_of_several_threads_are_whole_and_none_is_lost(log: logging.Logger) -> None:
    stream = io.StringIO()
    handler = LogHandler(stream, JSON)
    log.addHandler(handler)

    def write() -> None:
        for number in range(LINES_MAX):
            log.warning("line %d", number)

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    messages = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert len(messages) == LINES_MAX + 1
    assert messages[-1].startswith(f"{3 * LINES_MAX} more lines")


def test_after_the_interval_lines_are_written_again() -> None:
    limit = RepeatLimit()
    admitted = [limit.admit(record("m"), 0.0) for _ in range(LINES_MAX + 3)]
    assert admitted == [True] * LINES_MAX + [False] * 3
    assert limit.take_due(INTERVAL_SECONDS - 0.1) == []
    ((kind, count),) = limit.take_due(INTERVAL_SECONDS)
    assert (kind.message, count) == ("m", 3)
    assert limit.admit(record("m"), INTERVAL_SECONDS)


def test_the_number_of_kinds_is_bounded() -> None:
    limit = RepeatLimit()
    admitted = sum(limit.admit(record(f"text {number}"), 0.0) for number in range(KINDS_MAX + 10 * LINES_MAX))
    assert admitted == KINDS_MAX + LINES_MAX
    assert sum(count for _, count in limit.take_all()) == 9 * LINES_MAX


def test_every_line_is_written_or_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a twin that only counts: for each kind, written and reported lines are those that were logged."""
    monkeypatch.setattr(repeat_limit, "LINES_MAX", 3)
    monkeypatch.setattr(repeat_limit, "KINDS_MAX", 4)
    for seed in range(SEED, SEED + repetitions(quick=50, full=500)):
        chance, limit, now = random.Random(seed), RepeatLimit(), 0.0
        logged: Counter[str] = Counter()
        found: Counter[str] = Counter()
        for _ in range(200):
            now += chance.choice((0.0, 0.1, 3.0))
            for kind, count in limit.take_due(now):
                found[kind.logger] += count
            one = record(chance.choice("abcdefgh"), logger=chance.choice("xy"))
            logged[one.name] += 1
            if limit.admit(one, now):
                found[one.name] += 1
        for kind, count in limit.take_all():
            found[kind.logger] += count
        assert found == logged, f"seed {seed}"


def test_colour_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert LogHandler(Terminal(), TEXT).has_colour
    assert not LogHandler(io.StringIO(), TEXT).has_colour
    assert not LogHandler(Terminal(), JSON).has_colour
    monkeypatch.setenv("NO_COLOR", "1")
    assert not LogHandler(Terminal(), TEXT).has_colour
