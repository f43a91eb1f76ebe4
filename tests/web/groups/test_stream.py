"""The stream of a group's member: what it sends, what it commits, and how it follows the group."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kwire.server.http import stream_connections
from kwire.server.http.stream_connections import StreamConnection
from kwire.web.groups.stream import GroupStream
from tests.support.engines import Engine, only_embedded
from tests.support.node import in_uvloop
from tests.support.transactions import TransactionalProducer
from tests.web.groups.engine_port import port_over
from tests.web.groups.groups_port import Port

# No condition is waited for longer, however busy the machine is.
WAIT_TIMEOUT_S = 20.0
WAIT_PAUSE_S = 0.01
# A time limit of a stream that no test waits for.
LONG_MS = 60_000


async def wait_until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_TIMEOUT_S):
        while not await is_so():
            await asyncio.sleep(WAIT_PAUSE_S)


def stream_of(port: Port, member: str, group: str = "g") -> GroupStream:
    """The server's side of a member's open stream."""
    stream = port.services.web_groups._readers[group, member]
    assert isinstance(stream, GroupStream)
    return stream


def fire_time_limit(stream: GroupStream, timeout_ms: int) -> None:
    """Let the stream's time limit pass now, if a timer is set for it, so that a test need not race with it."""
    timer = stream._timers["end"]
    assert not timer.cancelled()
    # The loop counts milliseconds, and a sum of floats may be above its exact value.
    assert timer.when() <= asyncio.get_running_loop().time() + (timeout_ms + 1) / 1000
    timer.cancel()
    stream._timeout_expired()


async def commit_rounds(stream: GroupStream, count: int) -> None:
    """Run the auto-commit of a stream this many times, each to its end, as if that many intervals had passed."""

    async def is_done() -> bool:
        return not stream._is_commit_due and stream._worker is None

    for _ in range(count):
        stream._request_commit()
        await wait_until(is_done)


async def member_count(port: Port, group: str = "g") -> int:
    count: int = (await port.get(f"/{group}/stats")).body["member_count"]
    return count


@pytest.mark.proves("S0-68")
@in_uvloop
async def test_a_member_gets_the_events_of_its_partitions_and_what_comes_later(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 2)
        begun_at = port.clock.now_ms() // 1000
        await port.publish("t", 0, {"n": 1})
        member = await port.join("g")
        async with port.stream("g", member) as lines:
            assert lines.answer.headers["Content-Type"] == "application/x-ndjson"
            # A bridge answers the join before the cluster has assigned the partitions.
            told = await (lines.next() if engine.upstream is None else lines.assignment(0, 1))
            assert told == {
                "control": "assignment",
                "group_id": "g",
                "member_id": member,
                "generation": 2 if engine.upstream is None else 1,
                "partitions": [0, 1],
                "state": "stable",
            }
            (event,) = await lines.events(1)
            assert event.pop("id").startswith("evt_")
            assert event.pop("size_bytes") > 0
            assert begun_at <= event.pop("timestamp") <= port.clock.now_ms() // 1000
            assert event == {
                "partition_id": 0,
                "offset": 0,
                "topic": "t",
                "event_type": "made",
                "key": "k",
                "data": {"n": 1},
                "metadata": {},
            }
            await port.publish("t", 1, "later", "still later")
            assert [(one["partition_id"], one["offset"], one["data"]) for one in await lines.events(2)] == [
                (1, 0, "later"),
                (1, 1, "still later"),
            ]


@in_uvloop
async def test_reading_goes_on_where_the_group_has_committed(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, *range(5))
        await port.post("/g/offsets/commit", {"partition_id": 0, "offset": 3})
        async with port.stream("g", await port.join("g")) as lines:
            assert [one["data"] for one in await lines.events(2)] == [3, 4]
            caught_up = await lines.control("caught_up")
            assert (caught_up["partition_id"], caught_up["offset"]) == (0, 4)


@in_uvloop
async def test_without_a_commit_it_begins_as_it_was_asked_to(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, "old")
        member = await port.join("g")
        async with port.stream("g", member, "?reset=latest") as lines:
            await lines.control("caught_up")
            await port.publish("t", 0, "new")
            assert [one["data"] for one in await lines.events(1)] == ["new"]
        async with port.stream("g", member, "?reset=earliest") as lines:
            assert [one["data"] for one in await lines.events(2)] == ["old", "new"]


@in_uvloop
async def test_it_speaks_server_sent_events(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, 7)
        async with port.stream("g", await port.join("g"), "?limit=1", "text/event-stream") as lines:
            assert lines.answer.headers["Content-Type"] == "text/event-stream"
            text = (await lines.answer.content.read()).decode()
        blocks = text.strip().split("\n\n")
        assert blocks[0].startswith("event: assignment\ndata: {")
        if engine.upstream is not None:
            # The first ones are of the time before the cluster has assigned the partition.
            blocks = [*(one for one in blocks if one.startswith("event: assignment"))][-1:] + [
                one for one in blocks if not one.startswith("event: assignment")
            ]
        assert blocks[1].startswith('id: 0:0\ndata: {"id":"evt_')
        assert '"data":7' in blocks[1]
        assert blocks[2].startswith('event: closed\ndata: {"control":"closed"')
        assert len(blocks) == 3


@in_uvloop
async def test_it_ends_at_its_limit_and_commits_no_more_than_that(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, *range(10))
        member = await port.join("g")
        for first in (0, 4):
            async with port.stream("g", member, "?limit=4") as lines:
                found = await lines.rest()
            assert [one["data"] for one in found if "data" in one] == list(range(first, first + 4))
            assert (found[-1]["control"], found[-1]["code"]) == ("closed", "LimitReached")
            assert await port.committed("g", 0) == first + 4


@in_uvloop
async def test_it_never_lasts_longer_than_it_was_asked_to(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 2)
        await port.publish("t", 0, 1, 2)
        member = await port.join("g")
        # A busy machine may send nothing, or only the first, before such a short time is over.
        async with port.stream("g", member, "?timeout_ms=50") as lines:
            found = await lines.rest()
        sent = [one["data"] for one in found if "data" in one]
        assert sent == [1, 2][: len(sent)]
        assert found[-1]["code"] == "TimeoutExpired"
        assert (await port.committed("g", 0) or 0) == len(sent)
        await port.post("/g/offsets/commit", {"partition_id": 0, "offset": 0})
        async with port.stream("g", member, f"?timeout_ms={LONG_MS}") as lines:
            assert [one["data"] for one in await lines.events(2)] == [1, 2]
            fire_time_limit(stream_of(port, member), LONG_MS)
            assert (await lines.rest())[-1]["code"] == "TimeoutExpired"
        assert await port.committed("g", 0) == 2
        # A member that has to wait for its partitions waits no longer either.
        other = await port.join("g")
        async with port.stream("g", other, f"?timeout_ms={LONG_MS}") as lines:
            assert (await lines.next())["state"] == "rebalancing"
            fire_time_limit(stream_of(port, other), LONG_MS)
            assert (await lines.rest())[-1]["code"] == "TimeoutExpired"


@pytest.mark.proves("S0-89", "S0-90")
@in_uvloop
async def test_what_was_sent_is_committed_by_and_by(engine: Engine) -> None:
    async with port_over(engine, "kwire.rest.groups.auto.commit.interval.secs=1") as port:
        await port.create("g", "t", 2)
        await port.publish("t", 0, 1, 2, 3)
        async with port.stream("g", await port.join("g")) as lines:
            await lines.events(3)

            async def is_committed() -> bool:
                return await port.committed("g", 0) == 3 and await port.committed("g", 1) == 0

            await wait_until(is_committed)


@pytest.mark.proves("S0-89")
@pytest.mark.parametrize(
    ("settings", "query"), [((), "&auto_commit=false"), (("kwire.rest.groups.auto.commit=false",), "")]
)
@in_uvloop
async def test_without_auto_commit_nothing_is_committed(settings: tuple[str, ...], query: str, engine: Engine) -> None:
    async with port_over(engine, *settings) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, 1, 2, 3)
        member = await port.join("g")
        for _ in range(2):
            async with port.stream("g", member, f"?limit=3{query}") as lines:
                assert [one["data"] for one in await lines.rest() if "data" in one] == [1, 2, 3]
        assert await port.committed("g", 0) is None


@in_uvloop
async def test_a_connection_that_breaks_commits_nothing_and_what_was_on_its_way_comes_again(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, 1, 2)
        member = await port.join("g")
        async with port.stream("g", member) as lines:
            await lines.events(2)
        async with port.stream("g", member) as lines:
            assert [one["data"] for one in await lines.events(2)] == [1, 2]


@pytest.mark.proves("S0-80", "S0-92")
@in_uvloop
async def test_partitions_go_from_stream_to_stream_and_every_event_comes_once(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 4, strategy="range")
        first, second = await port.join("g"), None
        seen: list[tuple[int, int]] = []

        def note(events: list[dict[str, Any]]) -> None:
            seen.extend((one["partition_id"], one["offset"]) for one in events)

        async with port.stream("g", first) as one:
            await one.assignment(0, 1, 2, 3)
            for partition in range(4):
                await port.publish("t", partition, "a")
            note(await one.events(4))
            second = await port.join("g")
            async with port.stream("g", second) as two:
                mine, others = ((0, 1), (2, 3)) if first < second else ((2, 3), (0, 1))
                await one.assignment(*mine)
                await two.assignment(*others)
                for partition in range(4):
                    await port.publish("t", partition, "b")
                note(await one.events(2))
                note(await two.events(2))
                # A member that leaves is told, and what it had goes to the other at once.
                await port.ask("DELETE", f"/g/members/{second}/leave")
                assert (await two.control("closed"))["code"] == "MemberLeft"
            await one.assignment(0, 1, 2, 3)
            for partition in range(4):
                await port.publish("t", partition, "c")
            note(await one.events(4))
        assert sorted(seen) == [(partition, offset) for partition in range(4) for offset in range(3)]


@in_uvloop
async def test_an_open_stream_is_all_the_life_a_member_needs(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        member = await port.join("g", session_timeout_secs=1)
        async with port.stream("g", member) as lines:
            await lines.assignment(0)
            for _ in range(3):
                port.pass_time(0.8)
                deadline = port.session_deadline("g", member)

                async def has_beaten(before: float = deadline) -> bool:
                    return port.session_deadline("g", member) > before

                await wait_until(has_beaten)
            assert await member_count(port) == 1

        async def is_out() -> bool:
            port.pass_time(0.1)
            return await member_count(port) == 0

        await wait_until(is_out)


@in_uvloop
async def test_a_second_stream_of_a_member_ends_the_first(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        member = await port.join("g")
        async with port.stream("g", member) as one:
            await one.assignment(0)
            async with port.stream("g", member) as two:
                assert (await one.control("closed"))["code"] == "StreamReplaced"
                await two.assignment(0)
                await port.publish("t", 0, 1)
                assert [event["data"] for event in await two.events(1)] == [1]


@in_uvloop
async def test_new_partitions_are_read_too(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        async with port.stream("g", await port.join("g", session_timeout_secs=1)) as lines:
            await lines.assignment(0)
            await port.add_partitions("t", 2)
            await lines.assignment(0, 1)
            await port.publish("t", 1, "wide")
            assert [one["data"] for one in await lines.events(1)] == ["wide"]


@in_uvloop
async def test_it_ends_when_its_topic_is_deleted(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        async with port.stream("g", await port.join("g", session_timeout_secs=1)) as lines:
            await lines.assignment(0)
            await port.delete_topic("t")
            assert (await lines.control("closed"))["code"] == "UNKNOWN_TOPIC_OR_PARTITION"


@in_uvloop
async def test_what_retention_took_is_a_gap(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, *range(5))
        await port.post("/g/offsets/commit", {"partition_id": 0, "offset": 1})
        await port.delete_before("t", 3)
        async with port.stream("g", await port.join("g")) as lines:
            gap = await lines.control("gap")
            assert (gap["from_offset"], gap["to_offset"], gap["reason"]) == (1, 2, "retention")
            assert [one["data"] for one in await lines.events(2)] == [3, 4]


@in_uvloop
async def test_a_long_history_comes_whole_and_in_order(engine: Engine) -> None:
    count, portion = 20_000, 1_000
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        for first in range(0, count, portion):
            await port.publish("t", 0, *range(first, first + portion))
        async with port.stream("g", await port.join("g"), f"?limit={count}") as lines:
            assert [one["data"] for one in await lines.events(count)] == list(range(count))
            assert (await lines.control("closed"))["code"] == "LimitReached"
        assert await port.committed("g", 0) == count


@in_uvloop
async def test_a_node_that_stops_says_so_and_commits_what_was_sent(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, 1)
        async with port.stream("g", await port.join("g")) as lines:
            await lines.events(1)
            await port.close_streams()
            assert (await lines.control("closed"))["code"] == "ServerStopping"
        assert await port.committed("g", 0) == 1


EVENT_SIZE_BYTES = 1_000
SMALL_BUFFER_BYTES = 4_096
LARGE_BUFFER_BYTES = 1 << 20


@asynccontextmanager
async def stuck_stream(port: Port, group: str, member: str, query: str = "") -> AsyncIterator[socket.socket]:
    """A client that asks for its stream and then takes nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(sock, port.address)
        path = f"/consumer-groups/{group}/members/{member}/stream{query}"
        await loop.sock_sendall(sock, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        yield sock
    finally:
        sock.close()


async def has_begun(port: Port, count: int = 1) -> None:
    """Wait until streams read at least `count` partitions."""

    async def is_so() -> bool:
        return port.reader_count >= count

    await wait_until(is_so)


@in_uvloop
async def test_what_a_client_has_not_taken_is_not_committed_and_comes_again(engine: Engine) -> None:
    count = 200
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, *["x" * EVENT_SIZE_BYTES] * count)
        member = await port.join("g")
        async with stuck_stream(port, "g", member):
            await has_begun(port)
            stream = stream_of(port, member)

            async def has_sent_all() -> bool:
                return stream._readers[0].position == count

            await wait_until(has_sent_all)
            # What was sent before the first of them would count in the second if it had been taken.
            await commit_rounds(stream, 3)
            assert await port.committed("g", 0) in (None, 0)
        async with port.stream("g", member) as lines:
            assert (await lines.events(1))[0]["offset"] == 0


@in_uvloop
async def test_a_partition_that_goes_while_its_reader_takes_nothing_is_read_again_by_the_next(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 2)
        for partition in range(2):
            await port.publish("t", partition, *["x" * EVENT_SIZE_BYTES] * 200)
        stuck = await port.join("g")
        async with stuck_stream(port, "g", stuck):
            await has_begun(port, 2)
            other = await port.join("g")
            async with port.stream("g", other) as lines:
                assert (await lines.events(1))[0]["offset"] == 0


@pytest.fixture
def sweeps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the sweeps over taken connections, which follow each other quickly."""
    counts: Counter[str] = Counter()
    tick = StreamConnection.tick

    def counted(connection: StreamConnection, now: float) -> None:
        tick(connection, now)
        counts["done"] += 1

    monkeypatch.setattr(stream_connections, "SWEEP_SECONDS", 0.02)
    monkeypatch.setattr(StreamConnection, "tick", counted)
    return counts


@in_uvloop
async def test_a_slow_client_gets_all_up_to_its_limit_and_then_it_is_committed(
    engine: Engine, sweeps: Counter[str]
) -> None:
    count = 3_000
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        for _ in range(count // 500):
            await port.publish("t", 0, *["x" * EVENT_SIZE_BYTES] * 500)
        member = await port.join("g")
        async with stuck_stream(port, "g", member, f"?limit={count}") as sock:
            data, loop = b"", asyncio.get_running_loop()
            for _ in range(2):
                swept = sweeps["done"]

                async def is_swept(before: int = swept) -> bool:
                    # The first of them may have begun before.
                    return sweeps["done"] >= before + 2

                await wait_until(is_swept)
                data += await loop.sock_recv(sock, 1024)
            # It has been slow for long enough.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LARGE_BUFFER_BYTES)
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                while got := await loop.sock_recv(sock, LARGE_BUFFER_BYTES):
                    data += got
        assert data.count(b'"event_type"') == count
        assert data.endswith(b"0\r\n\r\n")
        assert b'"LimitReached"' in data
        assert await port.committed("g", 0) == count


@in_uvloop
async def test_a_member_that_leaves_has_committed_what_its_stream_had_sent(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, 1, 2)
        member = await port.join("g")
        async with port.stream("g", member) as lines:
            await lines.events(2)
            assert (await port.ask("DELETE", f"/g/members/{member}/leave")).status == 200
            assert (await lines.control("closed"))["code"] == "MemberLeft"
            assert await lines.next() is None
        assert await port.committed("g", 0) == 2
        assert await member_count(port) == 0


@in_uvloop
async def test_a_stuck_stream_does_not_keep_its_member_from_leaving(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        await port.publish("t", 0, *["x" * EVENT_SIZE_BYTES] * 200)
        member = await port.join("g")
        async with stuck_stream(port, "g", member):
            await has_begun(port)
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                assert (await port.ask("DELETE", f"/g/members/{member}/leave")).status == 200
        assert await port.committed("g", 0) in (None, 0)
        assert await member_count(port) == 0


@in_uvloop
async def test_nothing_is_left_of_streams_whose_clients_are_gone(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 3)
        topic = await port.find("t")
        assert topic is not None
        members = [await port.join("g") for _ in range(5)]
        for member in members:
            async with port.stream("g", member) as lines:
                await lines.control("assignment")

        async def is_quiet() -> bool:
            return len(port.services.port.serve_stream) == 0

        await wait_until(is_quiet)
        assert port.stream_count(topic) == 0
        assert port.services.web_groups._readers == {}
        assert port.watcher_count == 0


@only_embedded("the transactions are written to the log of the server")
@in_uvloop
async def test_a_member_gets_committed_events_and_commits_behind_markers(engine: Engine) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        topic = port.node.topics.get("t")
        assert topic is not None
        producer = TransactionalProducer(topic.partitions[0], 7)
        await port.publish("t", 0, "plain")
        producer.publish("aborted")
        producer.abort()
        producer.publish("open")
        await port.publish("t", 0, "behind")
        member = await port.join("g")
        async with port.stream("g", member, "?limit=3") as lines:
            (event,) = await lines.events(1)
            assert event["offset"] == 0
            caught_up = await lines.control("caught_up")
            assert caught_up["offset"] == 2
            producer.commit()
            assert [one["offset"] for one in await lines.events(2)] == [3, 4]
            await lines.rest()
        assert await port.committed("g", 0) == 6


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        ("Text/Event-Stream; q=0.9", "text/event-stream"),
        ("application/json, text/event-stream", "text/event-stream"),
        ("text/event-stream-archive", "application/x-ndjson"),
    ],
)
@in_uvloop
async def test_server_sent_events_are_sent_if_the_request_accepts_this_type(
    engine: Engine, accept: str, content_type: str
) -> None:
    async with port_over(engine) as port:
        await port.create("g", "t", 1)
        async with port.stream("g", await port.join("g"), accept=accept) as lines:
            assert lines.answer.headers["Content-Type"] == content_type
