"""A member that is a kafka-python consumer."""

from collections.abc import Iterable
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaConnectionError, KafkaError

from tests.support.group_members.language import (
    POLL_MS,
    arguments,
    python_settings,
    say,
    say_partitions,
    say_refused,
    wish_to_end,
)

ASSIGNORS = {"range": RangePartitionAssignor, "cooperative-sticky": CooperativeStickyAssignor}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        say_partitions("assigned", [partition.partition for partition in assigned])

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        say_partitions("revoked", [partition.partition for partition in revoked])


def main() -> None:
    topic, settings = arguments()
    strategy = settings.pop("partition.assignment.strategy", None)
    options: dict[str, Any] = python_settings(settings)
    if strategy is not None:
        options["partition_assignment_strategy"] = [ASSIGNORS[strategy]]
    wish = wish_to_end()
    consumer = KafkaConsumer(enable_auto_commit=False, auto_offset_reset="earliest", **options)
    consumer.subscribe([topic], listener=Listener())
    while not wish.is_set():
        try:
            batches = consumer.poll(timeout_ms=POLL_MS)
        except KafkaConnectionError as error:
            # Whether a server that is away shows here or in a commit is chance.
            say_refused(repr(error))
            continue
        for partition, records in batches.items():
            say("processed", partition.partition, *(record.offset for record in records))
        ends = {partition: records[-1].offset + 1 for partition, records in batches.items()}
        if not ends:
            continue
        try:
            consumer.commit({partition: OffsetAndMetadata(end, "", -1) for partition, end in ends.items()})
        except KafkaError as error:
            say_refused(repr(error))
        else:
            for partition, end in ends.items():
                say("committed", partition.partition, end)
    consumer.close(autocommit=False)


if __name__ == "__main__":
    main()
