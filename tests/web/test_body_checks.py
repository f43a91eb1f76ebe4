"""Large bodies are checked by a process, with the same outcome, and gathered without a copy."""

import tracemalloc

import msgspec
import pytest

from kwire.web.answers.errors import Refusal
from kwire.web.requests.body_checks import CHECKED_HERE_BYTES_MAX, BodyChecks
from kwire.web.requests.body_limits import STRINGS_MAX, check_events, check_objects
from kwire.web.rooms.lines import Lines
from tests.support.node import in_loop

MIB = 1024 * 1024


def event(data: bytes, metadata: bytes = b"{}") -> bytes:
    return b'{"event_type":"n","data":%b,"metadata":%b}' % (data, metadata)


def large_text() -> bytes:
    return b'"%b"' % (b"x" * CHECKED_HERE_BYTES_MAX)


@in_loop
async def test_a_process_checks_large_bodies_and_the_loop_small_ones() -> None:
    checks = BodyChecks()
    try:
        await checks.run(event(b"1"), check_objects, check_events)
        assert checks.worker_count == 0
        await checks.run(event(large_text()), check_objects, check_events)
        assert checks.worker_count == 1
        many = b"{%b}" % b",".join(b'"%d":"%b"' % (number, b"x" * 10) for number in range(STRINGS_MAX))
        with pytest.raises(Refusal) as told:
            await checks.run(event(b"1", many), check_objects, check_events)
        assert (told.value.code, told.value.status, told.value.details) == (
            "TooManyObjects",
            413,
            {"limit": STRINGS_MAX},
        )
        await checks.run(event(many), check_objects, check_events)
        for broken in (event(large_text())[:-1], event(large_text().replace(b"xx", b"\xff\xff", 1))[:-1]):
            with pytest.raises(msgspec.DecodeError):
                await checks.run(broken, check_objects, check_events)
        assert checks.worker_count == 5
    finally:
        await checks.close()


@in_loop
async def test_without_a_process_the_loop_checks_large_bodies() -> None:
    checks = BodyChecks()
    await checks.close()
    await checks.run(event(large_text()), check_objects, check_events)
    with pytest.raises(msgspec.DecodeError):
        await checks.run(event(large_text())[:-1], check_objects, check_events)


def test_a_long_line_is_not_copied_when_it_ends() -> None:
    lines, piece = Lines(16 * MIB), b"x" * (64 * 1024)
    tracemalloc.start()
    try:
        for _ in range(8 * MIB // len(piece)):
            assert lines.feed(piece) == []
        (line,) = lines.feed(b"\n")
        assert line.size_bytes == 8 * MIB
        assert tracemalloc.get_traced_memory()[1] < 12 * MIB
    finally:
        tracemalloc.stop()
