"""The rows of this family's table, with the targets (bars)."""

from collections.abc import Iterator

from benchmark.groups import commits, heartbeats, many_groups, rebalance
from benchmark.groups.options import HEARTBEATS, PROTOCOLS, Options
from benchmark.log.promises import PROMISES
from benchmark.measures import NO_STALLS, Bar, Measure

REBALANCE_MS = Bar(100, absolute=True)
COMMIT_US = Bar(1000, absolute=True)
NO_REJOINS = Bar(0, absolute=True)


def measures(given: Options) -> list[Measure]:
    return [*_rebalance(), *_commits(), *_heartbeats(), *_many_groups(given)]


def _rebalance() -> Iterator[Measure]:
    for protocol in PROTOCOLS:
        work = rebalance.name_of(protocol)
        yield Measure(f"a third member joins, {protocol}, p50", "ms", work, "join_p50_ms", REBALANCE_MS)
        yield Measure("- the longest", "ms", work, "join_max_ms")
        yield Measure("- three begin at the same time, p50", "ms", work, "form_p50_ms")
        yield Measure("- one of three leaves, p50", "ms", work, "leave_p50_ms")


def _commits() -> Iterator[Measure]:
    for promise in PROMISES:
        alone, *together = (commits.name_of(connections, promise) for connections in commits.CONNECTIONS)
        yield Measure(f"offset commit, one at a time, {promise.title}, p50", "us", alone, "p50_us", COMMIT_US)
        yield Measure("- p99", "us", alone, "p99_us")
        for connections, work in zip(commits.CONNECTIONS[1:], together, strict=True):
            yield Measure(f"- {connections} at a time", "commits/s", work, "requests_per_s")
            yield Measure("- p50", "us", work, "p50_us")
            yield Measure("- p99", "us", work, "p99_us")
            yield Measure("- server CPU", "us/commit", work, "cpu_us_per_request")


def _heartbeats() -> Iterator[Measure]:
    title = f"heartbeats, {heartbeats.CONNECTIONS} at a time"
    yield Measure(title, "requests/s", HEARTBEATS, "requests_per_s")
    yield Measure("- p50", "us", HEARTBEATS, "p50_us")
    yield Measure("- p99", "us", HEARTBEATS, "p99_us")
    yield Measure("- server CPU", "us/request", HEARTBEATS, "cpu_us_per_request")


def _many_groups(given: Options) -> Iterator[Measure]:
    sizes = given.sizes
    for protocol in PROTOCOLS:
        work = many_groups.name_of(protocol)
        title = f"{sizes.groups:,} groups x {sizes.members:,} members, {protocol}, server CPU"
        yield Measure(title, "cores", work, "cpu_share")
        yield Measure("- of it for each heartbeat", "us", work, "cpu_us_per_heartbeat")
        yield Measure("- heartbeats", "requests/s", work, "heartbeats_per_s", is_compared=False)
        yield Measure("- p50", "us", work, "p50_us")
        yield Measure("- p99", "us", work, "p99_us")
        yield Measure("- members that joined again", "", work, "rejoins", NO_REJOINS, is_compared=False)
        yield Measure("- time to bring them together", "s", work, "gathering_s")
        yield Measure("- anonymous memory with them", "MB", work, "memory_mb")
        yield Measure("- anonymous memory before", "MB", work, "empty_mb")
        yield Measure("- stalls over 50 ms meanwhile", "", work, "rest_stalls", NO_STALLS)
        yield Measure("- the same, from the first join on", "", work, "stalls")
