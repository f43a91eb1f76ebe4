"""GET /subscribe/all as NDJSON: one subscriber that reads all stored events, and subscribers that read new events."""

from collections.abc import Iterator, Sequence
from functools import partial

from benchmark.events.options import SUBSCRIBE
from benchmark.events.stage import WARM_UP_SHARE, EventWork, Stage, kwire, load
from benchmark.events.topics import ORDER, make_event_topics
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import KWIRE

STORED, LIVE = f"{SUBSCRIBE} stored", f"{SUBSCRIBE} live"
TOPICS = ("orders", "payments", "shipments")
STORED_BATCH_EVENTS = 1000
LIVE_BATCH_EVENTS = 100
LIVE_CONNECTIONS = 2


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    topics = ",".join(TOPICS)
    with kwire(stage) as server:
        make_event_topics(server, TOPICS, ORDER)
        stored = partial(load, stage, server, "subscribe-stored", topics=topics, batch=STORED_BATCH_EVENTS)
        yield observe(server, round_number, STORED, partial(stored, events=sizes.stored_events))
    with kwire(stage) as server:
        make_event_topics(server, TOPICS, ORDER)
        live = partial(
            load,
            stage,
            server,
            "subscribe-live",
            topics=topics,
            batch=LIVE_BATCH_EVENTS,
            connections=LIVE_CONNECTIONS,
            subscribers=sizes.subscribers,
        )
        for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
            yield observe(server, number, LIVE, partial(live, seconds=sizes.seconds * share))


WORK = EventWork(SUBSCRIBE, 20, run, servers=(KWIRE,))
