"""Topics and groups under the metric names of kafka_exporter, for dashboards and alerts that use these names; a part of
GET /metrics if `kwire.metrics.kafka.exporter` is set.

Names, labels and values are those of kafka_exporter 1.9. Topics are bounded by `kwire.metrics.topics.max`, their
partitions by PARTITION_SERIES_MAX, and groups as in `web/groups/metrics.py`. Topics that only the server itself may
read have no series: an exporter could not see them either.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from kwire.broker.admin.lag import Lag, Lags, Reader
from kwire.broker.topics.catalogue import HIDDEN_TOPICS, Catalogue
from kwire.web.groups.metrics import MeasuredGroups
from kwire.web.monitoring.text_format import Sample, family_text, label_text

# The maximum number of partitions with series. Each has seven.
PARTITION_SERIES_MAX = 5000

# Every log ends below this offset. A reader there has no unread record, so only the ends of the log are looked up.
_BEYOND_THE_END = 2**63 - 1


class BrokerFacts(NamedTuple):
    """This node, as clients see it."""

    node_id: int
    address: str


class _Partition(NamedTuple):
    """A partition with its labels. `extent` is None if the offsets of the log are not known yet."""

    labels: str
    extent: Lag | None


class _GroupTopic(NamedTuple):
    """The sums of a group over the partitions of one topic. Offsets whose lag is not known are not in `lag`."""

    labels: str
    committed: int
    lag: int


async def kafka_exporter_text(
    broker: BrokerFacts, catalogue: Catalogue, topics: Iterable[str], lags: Lags, groups: MeasuredGroups
) -> bytes:
    """Return the metrics of these topics and groups in Prometheus' text format."""
    parts = [
        await family_text("kafka_brokers", "Brokers of the cluster.", [Sample("", 1)]),
        await family_text(
            "kafka_broker_info",
            "Always 1. The labels are the id of a broker and its address.",
            [Sample(label_text(id=str(broker.node_id), address=broker.address), 1)],
        ),
        *[one async for one in _topic_families(broker.node_id, catalogue, topics, lags)],
        *[one async for one in _group_families(groups)],
    ]
    return "".join(parts).encode()


async def _topic_families(node_id: int, catalogue: Catalogue, topics: Iterable[str], lags: Lags) -> AsyncIterator[str]:
    counts = {
        name: facts.partition_count
        for name in topics
        if name not in HIDDEN_TOPICS and (facts := catalogue.find(name)) is not None
    }
    yield await family_text(
        "kafka_topic_partitions",
        "Partitions of a topic.",
        (Sample(label_text(topic=name), count) for name, count in counts.items()),
    )
    pairs = ((name, index) for name, count in counts.items() for index in range(count))
    readers = [Reader(name, index, _BEYOND_THE_END) for name, index in islice(pairs, PARTITION_SERIES_MAX)]
    extents = await lags.measure(readers)
    partitions = [
        _Partition(label_text(partition=str(reader.partition), topic=reader.topic), extent)
        for reader, extent in zip(readers, extents, strict=True)
    ]
    yield await family_text(
        "kafka_topic_partition_current_offset",
        "The high watermark of a partition: the offset after its last committed record.",
        (Sample(one.labels, one.extent.high_watermark) for one in partitions if one.extent is not None),
    )
    yield await family_text(
        "kafka_topic_partition_oldest_offset",
        "The log start offset of a partition.",
        (Sample(one.labels, one.extent.log_start_offset) for one in partitions if one.extent is not None),
    )
    # With one replica of each partition, these are constants.
    for name, help_text, value in (
        ("kafka_topic_partition_in_sync_replica", "In-sync replicas of a partition.", 1),
        ("kafka_topic_partition_leader", "The node id of the leader of a partition.", node_id),
        ("kafka_topic_partition_leader_is_preferred", "1 if the leader is the preferred one.", 1),
        ("kafka_topic_partition_replicas", "Replicas of a partition.", 1),
        ("kafka_topic_partition_under_replicated_partition", "1 if a replica is not in sync.", 0),
    ):
        yield await family_text(name, help_text, (Sample(one.labels, value) for one in partitions))


async def _group_families(groups: MeasuredGroups) -> AsyncIterator[str]:
    sums = list(_sums_by_topic(groups))
    yield await family_text(
        "kafka_consumergroup_members",
        "Members of a group.",
        (Sample(label_text(consumergroup=one.group.group_id), one.group.member_count) for one in groups.reports),
    )
    yield await family_text(
        "kafka_consumergroup_current_offset",
        "The committed offset of a group for a partition.",
        _offset_samples(groups, is_lag=False),
    )
    yield await family_text(
        "kafka_consumergroup_current_offset_sum",
        "The sum of the committed offsets of a group for a topic.",
        (Sample(one.labels, one.committed) for one in sums),
    )
    yield await family_text(
        "kafka_consumergroup_lag",
        "Offsets between the committed offset of a group and the high watermark of a partition.",
        _offset_samples(groups, is_lag=True),
    )
    yield await family_text(
        "kafka_consumergroup_lag_sum",
        "The sum of the lags of a group for a topic.",
        (Sample(one.labels, one.lag) for one in sums),
    )


def _offset_samples(groups: MeasuredGroups, *, is_lag: bool) -> Iterator[Sample]:
    for report in groups.reports:
        group_id = report.group.group_id
        for one in report.offsets:
            value = _lag_of(one.lag, one.committed.offset) if is_lag else one.committed.offset
            if value is not None:
                yield Sample(label_text(consumergroup=group_id, partition=str(one.partition), topic=one.topic), value)


def _sums_by_topic(groups: MeasuredGroups) -> Iterator[_GroupTopic]:
    for report in groups.reports:
        sums: dict[str, tuple[int, int]] = {}
        for one in report.offsets:
            committed, lag = sums.get(one.topic, (0, 0))
            offset = one.committed.offset
            sums[one.topic] = committed + offset, lag + (_lag_of(one.lag, offset) or 0)
        for topic, (committed, lag) in sums.items():
            yield _GroupTopic(label_text(consumergroup=report.group.group_id, topic=topic), committed, lag)


def _lag_of(lag: Lag | None, offset: int) -> int | None:
    """Return the distance to the high watermark. kwire's own metrics have the distance to the last stable offset."""
    return None if lag is None else lag.high_watermark - offset
