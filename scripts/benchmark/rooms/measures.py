"""The rows of this family's table, with the targets (bars)."""

from collections.abc import Iterator

from benchmark.measures import Bar, Measure
from benchmark.rooms import broadcasts, many_rooms, publishing, rest_groups
from benchmark.rooms.options import START_UP, Options
from benchmark.rooms.stage import SYNCED

BROADCAST_US = Bar(1000, absolute=True)
BARRED_SUBSCRIBERS = 100
EVENTS_PER_S = Bar(10_000, at_least=True, absolute=True)
COMMIT_US = Bar(1000, absolute=True)
REBALANCE_MS = Bar(100, absolute=True)


def measures(given: Options) -> list[Measure]:
    return [
        *_broadcasts(given),
        *_deliveries(given),
        *_publishing(),
        *_many_rooms(given),
        *_rest_groups(),
        Measure("start-up until the port is open", "ms", START_UP, "port_ms"),
    ]


def _broadcasts(given: Options) -> Iterator[Measure]:
    for subscribers in given.sizes.subscribers:
        work, bar = broadcasts.name_of(subscribers), BROADCAST_US if subscribers == BARRED_SUBSCRIBERS else None
        people = f"{subscribers:,} subscriber{'s' if subscribers > 1 else ''}"
        yield Measure(f"publish to last delivery, {people}, p50", "us", work, "p50_us", bar)
        yield Measure("- p99", "us", work, "p99_us")
        yield Measure("- server CPU", "us/delivery", work, "cpu_us_per_request")
        plain = broadcasts.plain_name_of(subscribers)
        yield Measure("- p50 beside NATS without a stream's past", "us", work, "p50_us", beside_work=plain)
    synced = SYNCED.of(broadcasts.name_of(broadcasts.SYNCED_SUBSCRIBERS))
    yield Measure(f"the same, synced, {broadcasts.SYNCED_SUBSCRIBERS} subscribers, p50", "us", synced, "p50_us")
    yield Measure("- p99", "us", synced, "p99_us")


def _deliveries(given: Options) -> Iterator[Measure]:
    for subscribers in given.sizes.subscribers:
        work = broadcasts.deliveries_name_of(subscribers)
        yield Measure(f"deliveries, {subscribers:,} subscribers", "1/s", work, "deliveries_per_s")
        yield Measure("- events", "1/s", work, "events_per_s")
        yield Measure("- server CPU", "us/delivery", work, "cpu_us_per_request")
        yield _generator(work)


def _generator(work: str) -> Measure:
    """Return the row with the CPU share of the load program. Near 1, its reader thread may have been the bottleneck."""
    return Measure("- load program", "cores", work, "generator_busy_share", is_compared=False)


def _publishing() -> Iterator[Measure]:
    one, many = publishing.name_of(publishing.ONE_BY_ONE), publishing.name_of(publishing.PIPELINED)
    window, batch = publishing.WINDOW_EVENTS, publishing.BATCH_EVENTS
    yield Measure(f"publish, {window:,} under way, WebSocket", "events/s", many, "events_per_s", EVENTS_PER_S)
    yield Measure("- server CPU", "us/event", many, "cpu_us_per_request")
    yield _generator(many)
    yield Measure("publish, one at a time, WebSocket", "events/s", one, "events_per_s")
    yield Measure("- p50", "us", one, "p50_us")
    yield Measure("- p99", "us", one, "p99_us")
    yield Measure("publish, synced, many under way", "events/s", SYNCED.of(many), "events_per_s", EVENTS_PER_S)
    yield Measure("- one at a time, p50", "us", SYNCED.of(one), "p50_us")
    for title, way, bar in (
        (f"publish by POST of {batch} events, 2 connections", publishing.POST_BATCH, EVENTS_PER_S),
        (f"publish by one POST of lines, {window:,} under way", publishing.POST_LINES, EVENTS_PER_S),
        ("publish by POST of one event, 8 connections", publishing.POST, None),
    ):
        work = publishing.name_of(way)
        yield Measure(title, "events/s", work, "events_per_s", bar)
        if way is publishing.POST:
            yield Measure("- p50", "us", work, "p50_us")
            yield Measure("- p99", "us", work, "p99_us")
        yield Measure("- server CPU", "us/event", work, "cpu_us_per_request")


def _many_rooms(given: Options) -> Iterator[Measure]:
    for rooms in given.sizes.rooms:
        work = many_rooms.name_of(rooms)
        yield Measure(f"{rooms:,} rooms, anonymous memory", "MB", work, "memory_mb")
        yield Measure("- before", "MB", work, "empty_mb")
        yield Measure("- for each room", "bytes", work, "bytes_per_room")
        yield Measure("- made, with an event each", "rooms/s", work, "events_per_s")
        if rooms == given.sizes.streams:
            streams = many_rooms.STREAMS
            yield Measure(
                "- for each, beside NATS with a stream each", "bytes", work, "bytes_per_room", beside_work=streams
            )
            yield Measure("- made, beside the same", "rooms/s", work, "events_per_s", beside_work=streams)


def _rest_groups() -> Iterator[Measure]:
    for sync in rest_groups.SYNCS:
        commits = rest_groups.name_of(rest_groups.COMMITS, sync)
        rebalances = rest_groups.name_of(rest_groups.REBALANCES, sync)
        yield Measure(f"group over HTTP, log.sync={sync}: commit, p50", "us", commits, "p50_us", COMMIT_US)
        yield Measure("- p99", "us", commits, "p99_us")
        title = f"- rebalance of {rest_groups.MEMBERS} streaming members, p50"
        yield Measure(title, "ms", rebalances, "p50_ms", REBALANCE_MS)
