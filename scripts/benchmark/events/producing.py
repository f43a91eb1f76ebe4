"""Kafka's producer tool with a plain topic, an event topic that accepts any JSON, and an event topic with a schema.

All are compared with a plain topic of Apache Kafka. An event topic is always synced, so the cost of a schema is the
difference from a plain topic that is also synced.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmark.admin import Admin
from benchmark.events.options import PRODUCE
from benchmark.events.stage import SETTINGS, EventWork, Stage
from benchmark.events.topics import ANYTHING, ORDER, make_event_topics, write_payloads
from benchmark.log.promises import PAGE_CACHE, SYNCED
from benchmark.options import WARM_UP_SHARE
from benchmark.samples import WARM_UP_ROUND, Sample, observe
from benchmark.servers import KAFKA, KWIRE, RunningServer
from benchmark.works import CLIENT_DEFAULTS, Outcome

PLAIN = f"{PRODUCE} plain"
UNCHECKED, CHECKED = f"{PRODUCE} event topic", f"{PRODUCE} event topic with schema"
PLAIN_SYNCED = SYNCED.of(PLAIN)
PLAINS = {PAGE_CACHE.of(PLAIN): PAGE_CACHE, PLAIN_SYNCED: SYNCED}
SCHEMAS = {UNCHECKED: ANYTHING, CHECKED: ORDER}


def run(stage: Stage, round_number: int, names: Sequence[str]) -> Iterator[Sample]:
    with ExitStack() as stack:
        payloads = write_payloads(stack.enter_context(stage.folder("payloads")) / "orders")
        servers = [stack.enter_context(stage.server(name, SETTINGS if name == KWIRE else {})) for name in names]
        for number, share in ((WARM_UP_ROUND, WARM_UP_SHARE), (round_number, 1.0)):
            records = max(1, int(stage.options.sizes.produced_records * share))
            plain_rates: dict[str, float] = {}
            for work in (*PLAINS, *SCHEMAS):
                for server in servers:
                    if work in SCHEMAS and server.product.name != KWIRE:
                        continue
                    topic = f"{work.replace(' ', '-').replace(',', '')}-{number}"
                    _make(server, work, topic)
                    sample = observe(server, number, work, partial(_produce, stage, server, topic, records, payloads))
                    if work == PLAIN_SYNCED:
                        plain_rates[server.product.name] = sample.figures["records_per_s"]
                    elif work in SCHEMAS:
                        sample.figures["of_plain"] = sample.figures["records_per_s"] / plain_rates[KWIRE]
                    yield sample


def _make(server: RunningServer, work: str, topic: str) -> None:
    if work in SCHEMAS:
        make_event_topics(server, [topic], SCHEMAS[work])
        return
    with Admin(server.address) as admin:
        admin.make_topic(topic, 1, PLAINS[work].configs[server.product.name])


def _produce(stage: Stage, server: RunningServer, topic: str, records: int, payloads: Path) -> Outcome:
    assert stage.tools.kafka is not None
    return Outcome(stage.tools.kafka.produce(server, topic, records, payloads, CLIENT_DEFAULTS), requests=records)


WORK = EventWork(PRODUCE, 75, run, takes_turns=True, servers=(KAFKA, KWIRE))
