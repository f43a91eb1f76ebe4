"""The rows of this family's table, with the targets (bars)."""

from collections.abc import Iterator

from benchmark.events import files, producing, subscribing, webhooks
from benchmark.events.options import Options
from benchmark.events.publishing import GROUP, OS, WAYS, Way
from benchmark.log.promises import PAGE_CACHE
from benchmark.measures import NO_STALLS, Bar, Measure

BATCHED_EVENTS_PER_S = Bar(20_000, at_least=True, absolute=True)


def measures(given: Options) -> list[Measure]:
    return [
        *_publishing(),
        *_producing(),
        *_webhooks(),
        *_files(given),
        *_subscribing(given),
    ]


def _publishing() -> Iterator[Measure]:
    for way in WAYS:
        work = way.named(GROUP)
        bar = BATCHED_EVENTS_PER_S if way.batch > 1 and way.has_schema else None
        yield Measure(_title(way), "events/s", work, "events_per_s", bar)
        yield Measure("- p50 of a request", "us", work, "p50_us")
        yield Measure("- p99", "us", work, "p99_us")
        yield Measure("- server CPU", "us/event", work, "cpu_us_per_request")
        if OS in way.syncs:
            yield Measure("- where log.sync=os for other topics", "events/s", way.named(OS), "events_per_s")
        yield _load_program(work)
    largest = WAYS[-1].named(GROUP)
    yield Measure("- anonymous memory in the end", "MB", largest, "memory_mb")
    yield Measure("- stalls over 50 ms meanwhile", "", largest, "stalls", NO_STALLS)


def _title(way: Way) -> str:
    events = "one event" if way.batch == 1 else f"{way.batch:,} events"
    connections = "1 connection" if way.connections == 1 else f"{way.connections} connections"
    spread = f" for {way.topics} topics" if way.topics > 1 else ""
    return f"POST of {events}{spread}, {connections}, {'schema' if way.has_schema else 'any JSON'}"


def _load_program(work: str) -> Measure:
    """Return the row with the CPU share of the load program. Near 1, the program may have been the bottleneck."""
    return Measure("- load program", "cores", work, "generator_busy_share", is_compared=False)


def _producing() -> Iterator[Measure]:
    plain = PAGE_CACHE.of(producing.PLAIN)
    yield Measure(f"Produce, plain topic, {PAGE_CACHE.title}", "records/s", plain, "records_per_s")
    yield Measure("- server CPU", "us/record", plain, "cpu_us_per_request")
    synced = producing.PLAIN_SYNCED
    yield Measure("Produce, plain topic, synced", "records/s", synced, "records_per_s")
    yield Measure("- server CPU", "us/record", synced, "cpu_us_per_request")
    for title, work in (
        ("Produce, event topic that takes any JSON, beside a plain topic", producing.UNCHECKED),
        ("Produce, event topic with a schema, beside a plain topic", producing.CHECKED),
    ):
        yield Measure(title, "records/s", work, "records_per_s", beside_work=plain)
        yield Measure("- of kwire's plain topic, synced", "share", work, "of_plain")
        yield Measure("- p99 as the producer saw it", "ms", work, "p99_ms", beside_work=plain)
        yield Measure("- server CPU", "us/record", work, "cpu_us_per_request", beside_work=plain)


def _webhooks() -> Iterator[Measure]:
    for title, work in (
        ("webhook, one delivery after the other", webhooks.ORDERED),
        (f"webhook, {webhooks.PARALLEL_DELIVERIES} deliveries at a time", webhooks.PARALLEL),
    ):
        yield Measure(title, "1/s", work, "deliveries_per_s")
        yield Measure("- server CPU", "us/delivery", work, "cpu_us_per_request")
        yield _load_program(work)
    yield Measure("webhook, publish to receipt, one at a time, p50", "us", webhooks.LATENCY, "p50_us")
    yield Measure("- p99", "us", webhooks.LATENCY, "p99_us")


def _files(given: Options) -> Iterator[Measure]:
    sizes = given.sizes
    yield Measure(f"export of {sizes.exported_events:,} events to files", "s", files.EXPORT, "export_s")
    yield Measure("- files", "1/s", files.EXPORT, "files_per_s")
    yield Measure("- kwire event export", "cores", files.EXPORT, "generator_busy_share", is_compared=False)
    yield Measure("- server CPU", "us/event", files.EXPORT, "cpu_us_per_request")
    yield Measure(f"files in step with {sizes.steady_per_s:,} events/s, behind by, p50", "us", files.STEADY, "p50_us")
    yield Measure("- p99", "us", files.STEADY, "p99_us")
    yield Measure("- longest", "us", files.STEADY, "max_us")
    yield Measure("- server CPU", "us/event", files.STEADY, "cpu_us_per_request")
    yield Measure("- stalls over 50 ms meanwhile", "", files.STEADY, "stalls", NO_STALLS)


def _subscribing(given: Options) -> Iterator[Measure]:
    stored, live = subscribing.STORED, subscribing.LIVE
    yield Measure("subscribe-all, one reader of what is stored", "1/s", stored, "deliveries_per_s")
    yield _load_program(stored)
    yield Measure(f"subscribe-all, {given.sizes.subscribers} readers at the head", "1/s", live, "deliveries_per_s")
    yield Measure("- events", "1/s", live, "events_per_s")
    yield Measure("- server CPU", "us/delivery", live, "cpu_us_per_request")
    yield _load_program(live)
