"""The rows of this family's table, with the targets (bars). The title of a row names its promise (see promises.py)."""

from collections.abc import Iterator

from benchmark.log import durable, many_topics, sync_round, upkeep
from benchmark.log.options import COMPACTION, RECOVERY, UPKEEP, Options
from benchmark.log.promises import PAGE_CACHE, PROMISES, SYNCED, Promise
from benchmark.measures import NO_STALLS, Bar, Measure

NONE_LOST = Bar(0, absolute=True)
TWICE = Bar(2, absolute=True)
START_UP_MS = Bar(5000, absolute=True)
RESIDENT_MB = Bar(1024 * 1024 * 1024 / 1e6, absolute=True)


def measures(given: Options) -> list[Measure]:
    return [
        *_sync_rounds(),
        *_durable(),
        *_upkeep(),
        *_compaction(given),
        *_many_topics(given),
        *_recovery(given),
    ]


def _sync_rounds() -> Iterator[Measure]:
    for partitions in sync_round.DIRTY_PARTITIONS:
        work = sync_round.name_of(partitions)
        dirty = f"{partitions:,} dirty partition{'s' if partitions > 1 else ''}"
        yield Measure(f"sync round, {dirty}, median", "ms", work, "p50_ms")
        yield Measure("- p99", "ms", work, "p99_ms")
        yield Measure("- the first, with new files and folders", "ms", work, "first_ms")
        yield Measure("- of the loop's time before it", "ms", work, "begin_ms")


def _durable() -> Iterator[Measure]:
    for promise in PROMISES:
        work = promise.of(durable.PRODUCE)
        yield Measure(f"produce 1 KiB, 6 partitions, {promise.title}", "records/s", work, "records_per_s")
        yield Measure("- p50", "ms", work, "p50_ms")
        yield Measure("- p99", "ms", work, "p99_ms")
        yield from _beside_page_cache(promise, durable.PRODUCE, "records/s", "records_per_s")
    for connections in durable.CONNECTIONS:
        load = durable.requests_with(connections)
        for promise in PROMISES:
            work = promise.of(load)
            title = f"small requests, {connections} connections, {promise.title}"
            yield Measure(title, "requests/s", work, "requests_per_s")
            yield Measure("- p50", "us", work, "p50_us")
            yield Measure("- p99", "us", work, "p99_us")
            yield from _beside_page_cache(promise, load, "requests/s", "requests_per_s")


def _beside_page_cache(promise: Promise, load: str, unit: str, figure: str) -> Iterator[Measure]:
    if promise is SYNCED:
        work, page_cache = SYNCED.of(load), PAGE_CACHE.of(load)
        yield Measure("- share of the same in page cache", "x", work, "of_page_cache", is_compared=False)
        yield Measure("- kwire synced beside Kafka in page cache", unit, work, figure, beside_work=page_cache)


def _upkeep() -> Iterator[Measure]:
    for promise in PROMISES:
        for phase in upkeep.PHASES:
            start = f"{phase.name} {promise.name}"
            yield Measure(f"small request {phase.name}, {promise.title}, p50", "us", UPKEEP, f"{start} ack_p50_us")
            yield Measure("- p99", "us", UPKEEP, f"{start} ack_p99_us")
        ratio = f"{promise.name} ack_p99_us of"
        yield Measure("- p99 busy / idle", "x", UPKEEP, f"{ratio} {upkeep.IDLE.name}", TWICE, is_compared=False)
        beside = f"{ratio} {upkeep.BESIDE_LOAD.name}"
        yield Measure("- p99 busy / beside load", "x", UPKEEP, beside, is_compared=False)
    yield Measure("- deleted by retention meanwhile", "MB", UPKEEP, "deleted_mb", is_compared=False)
    yield Measure("- compacted away meanwhile", "MB", UPKEEP, "compacted_away_mb", is_compared=False)
    yield Measure("- stalls over 50 ms meanwhile", "", UPKEEP, f"{upkeep.BUSY.name} stalls", NO_STALLS)
    yield Measure("- longest stall since the start", "ms", UPKEEP, f"{upkeep.BUSY.name} stall_ms_max")
    yield Measure("- longest wait for a CPU", "ms", UPKEEP, f"{upkeep.BUSY.name} queue_wait_ms_max")


def _compaction(given: Options) -> Iterator[Measure]:
    what = f"compaction of {given.sizes.compact_gb:g} GB, {given.sizes.keys:,} keys"
    yield Measure(what, "MB/s", COMPACTION, "mb_per_s")
    yield Measure("- without a server", "MB/s", COMPACTION, "alone_mb_per_s")
    yield Measure("- dirty before", "MB", COMPACTION, "dirty_mb", is_compared=False)
    yield Measure("- kept of it", "MB", COMPACTION, "kept_mb", is_compared=False)
    yield Measure("- server CPU", "s/GB", COMPACTION, "cpu_s_per_gb")
    yield Measure("- stalls over 50 ms meanwhile", "", COMPACTION, "stalls", NO_STALLS)


def _many_topics(given: Options) -> Iterator[Measure]:
    sizes = given.sizes
    shared, all_of_them = many_topics.SHARED, many_topics.ALL
    yield from _topics(f"{sizes.shared_topics:,} topics", PAGE_CACHE.title, shared, None, None)
    yield from _topics(f"{sizes.topics:,} topics", "synced (group)", all_of_them, RESIDENT_MB, START_UP_MS)


def _topics(topics: str, promise: str, work: str, resident: Bar | None, start_up: Bar | None) -> Iterator[Measure]:
    yield Measure(f"{topics}, made", "topics/s", work, "created_per_s")
    yield Measure("- stalls over 50 ms meanwhile", "", work, "created_stalls", NO_STALLS)
    yield Measure(f"- resident, {many_topics.HOT} hot", "MB", work, "loaded_rss_mb", resident)
    yield Measure("- anonymous of it", "MB", work, "loaded_anonymous_mb")
    yield Measure("- anonymous when empty", "MB", work, "empty_mb")
    yield Measure("- start-up after a clean stop", "ms", work, "clean_ms", start_up)
    yield Measure("- start-up after SIGKILL", "ms", work, "killed_ms", start_up)
    yield Measure("- resident after that", "MB", work, "started_rss_mb", resident)
    yield Measure(f"- produce to the hot ones, {promise}, p50", "us", work, "p50_us")
    yield Measure("- p99", "us", work, "p99_us")
    yield Measure("- requests", "requests/s", work, "requests_per_s")
    yield Measure("- stalls over 50 ms under that load", "", work, "stalls", NO_STALLS)


def _recovery(given: Options) -> Iterator[Measure]:
    what = f"recovery of {given.sizes.log_gb:g} GB after SIGKILL"
    yield Measure(f"{what}, to the last record of all", "ms", RECOVERY, "served_ms")
    yield Measure("- to open port", "ms", RECOVERY, "port_ms")
    yield Measure("- to the ready line", "ms", RECOVERY, "ready_ms")
    yield Measure("- server CPU until then", "s", RECOVERY, "cpu_s")
    yield Measure("- records lost", "", RECOVERY, "lost_records", NONE_LOST, is_compared=False)
