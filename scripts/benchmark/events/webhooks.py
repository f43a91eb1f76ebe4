"""Measures the rate and the latency of deliveries to a webhook. Its receiver on this machine answers immediately."""

from collections.abc import Iterator, Sequence
from functools import partial

from benchmark.events.options import WEBHOOKS
from benchmark.events.stage import EventWork, Stage, kwire, load
from benchmark.events.topics import ORDER, make_event_topics
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import KWIRE

ORDERED, PARALLEL, LATENCY = f"{WEBHOOKS} ordered", f"{WEBHOOKS} parallel", f"{WEBHOOKS} latency"
PARALLEL_DELIVERIES = 32
PROBES_PER_S = 50
BATCH_EVENTS = 500
TOPIC = "hooks"
WARM_UP_EVENTS = 200


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    sizes = stage.options.sizes
    for work, parallel in ((ORDERED, 1), (PARALLEL, PARALLEL_DELIVERIES)):
        for number, events in ((WARM_UP_ROUND, WARM_UP_EVENTS), (round_number, sizes.delivered_events)):
            with kwire(stage) as server:  # A new server, because the previous webhook would get these events, too.
                make_event_topics(server, [TOPIC], ORDER)
                deliver = partial(load, stage, server, "webhook-backlog", topics=TOPIC, batch=BATCH_EVENTS)
                yield observe(server, number, work, partial(deliver, events=events, parallel=parallel))
    with kwire(stage) as server:
        make_event_topics(server, [TOPIC], ORDER)
        probe = partial(load, stage, server, "webhook-latency", topics=TOPIC, events=sizes.probes, rate=PROBES_PER_S)
        yield observe(server, round_number, LATENCY, probe)


WORK = EventWork(WEBHOOKS, 40, run, servers=(KWIRE,))
