"""Metrics with the name of the topic: sizes and traffic; a part of GET /metrics.

Clients create topics, so the number of series is bounded by `kwire.metrics.topics.max`. The names are full names, with
the prefix of their scope: only clients that may describe the cluster, and no tenants, can read /metrics.
"""

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice
from operator import attrgetter

from kwire.broker.topics.topic_traffic import TopicTraffic, Traffic
from kwire.broker.topics.topics import Topics
from kwire.web.monitoring.text_format import Sample, family_text, label_text

# The label values of the series that several topics share. No topic can have such a name.
OTHER_TOPICS = "(others)"
ROOMS = "(rooms)"
# Adding the traffic of a partition takes about a microsecond.
PARTITIONS_PER_CHUNK = 1000


async def topic_text(topics: Topics, sizes: Mapping[str, int], other_bytes: int) -> bytes:
    """Return the metrics of topics in Prometheus' text format. `sizes` has the size of each topic with its own series,
    `other_bytes` is the total size of all other topics."""
    await _add_traffic(topics)
    traffic = dict(_traffic_by_label(topics.traffic))
    size_samples = [Sample(label_text(topic=name), size) for name, size in sizes.items()]
    if len(topics) > len(sizes):
        size_samples.append(Sample(label_text(topic=OTHER_TOPICS), other_bytes))

    async def counter(name: str, help_text: str, field: str) -> str:
        value_of = attrgetter(field)
        samples = (Sample(labels, value_of(one)) for labels, one in traffic.items())
        return await family_text(name, help_text, samples, "counter")

    parts = [
        await family_text("kwire_storage_log_size_bytes", "Bytes of records, by topic.", size_samples),
        await counter(
            "kwire_topic_appended_bytes_total",
            "Bytes of record batches appended to a topic, by clients or by the server itself.",
            "appended_bytes",
        ),
        await counter(
            "kwire_topic_appended_records_total",
            "Records appended to a topic, by clients or by the server itself. Transaction markers are counted too.",
            "appended_records",
        ),
        await counter(
            "kwire_topic_fetched_bytes_total",
            "Bytes of record batches of a topic sent in answers to Fetch requests.",
            "fetched_bytes",
        ),
        await counter(
            "kwire_topic_fetched_records_total",
            "Records of a topic sent in answers to Fetch requests, counted by offsets: removed records between others "
            "are counted too.",
            "fetched_records",
        ),
    ]
    return "".join(parts).encode()


async def _add_traffic(topics: Topics) -> None:
    partitions = iter(list(topics.open_partitions))
    while some := list(islice(partitions, PARTITIONS_PER_CHUNK)):
        # A partition that was deleted between two chunks would add a topic that does not exist.
        topics.traffic.add_from(one for one in some if not one.is_forgotten)
        await asyncio.sleep(0)


def _traffic_by_label(traffic: TopicTraffic) -> Iterator[tuple[str, Traffic]]:
    for name, one in traffic.by_topic.items():
        yield label_text(topic=name), one
    for name, shared in ((ROOMS, traffic.of_rooms), (OTHER_TOPICS, traffic.of_other_topics)):
        if any(shared):
            yield label_text(topic=name), shared
