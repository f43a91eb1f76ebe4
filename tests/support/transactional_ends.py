"""The end of a run of transactions: until nothing is open any more, and everything is read once more from the first."""

from collections.abc import Iterable, Sequence
from functools import partial

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.support.history import FinalLog, History, Isolation, Place, value_in
from tests.support.server import wait_until
from tests.support.transactional_producer import EAGER
from tests.support.transactional_workers import (
    Reader,
    asking_consumer,
    note_positions,
    offset_of,
    place_of,
    reading_consumer,
)

READ_BATCH_MAX = 1_000
POLL_S = 0.5
READ_POLLS_MAX = 400
ASK_TIMEOUT_S = 10.0
LEVELS = {
    Isolation.COMMITTED: IsolationLevel.READ_COMMITTED,
    Isolation.UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
}


class Ends:
    """Asks for the ends of partitions: the high watermark and the last stable offset."""

    def __init__(self, bootstrap: str, places: Sequence[Place]) -> None:
        self.places = places
        self._admin = AdminClient({**EAGER, "bootstrap.servers": bootstrap})

    def at(self, isolation: Isolation) -> dict[Place, int]:
        """Empty while the server cannot tell."""
        asked = {TopicPartition(place.topic, place.partition): OffsetSpec.latest() for place in self.places}
        answers = self._admin.list_offsets(asked, isolation_level=LEVELS[isolation], request_timeout=ASK_TIMEOUT_S)
        try:
            return {
                Place(partition.topic, partition.partition): answer.result().offset
                for partition, answer in answers.items()
            }
        except KafkaException:
            return {}

    def open_places(self) -> dict[Place, tuple[int, int]]:
        """Where the last stable offset is not at the end, with both."""
        stable, ends = self.at(Isolation.COMMITTED), self.at(Isolation.UNCOMMITTED)
        if not stable or not ends:
            return dict.fromkeys(self.places, (-1, -1))
        return {place: (stable[place], ends[place]) for place in self.places if stable[place] < ends[place]}

    def wait_until_settled(self, timeout_s: float) -> None:
        """A transaction that never ends is an anomaly; the final read tells which, so this only waits."""
        try:
            wait_until(lambda: not self.open_places(), "every transaction has ended", timeout_s)
        except AssertionError:
            print(f"still open after {timeout_s} s: {self.open_places()}")

    def wait_until_read(self, readers: Iterable[Reader], timeout_s: float) -> None:
        stable = wait_until(lambda: self.at(Isolation.COMMITTED), "the ends are told", timeout_s)
        for reader in readers:
            wait_until(partial(reader.has_reached, stable), f"{reader.name} reaches {stable}", timeout_s)


def note_final_logs(bootstrap: str, history: History, places: Sequence[Place]) -> None:
    """Every partition from the first offset to its end, by a reader of committed records and by one of all."""
    ends = Ends(bootstrap, places)
    for isolation in Isolation:
        end_offsets = wait_until(partial(ends.at, isolation), "the ends are told")
        records = read_whole(bootstrap, isolation, end_offsets)
        history.note_all(
            FinalLog(place=place, isolation=isolation, records=records[place], end_offset=end_offsets[place])
            for place in places
        )


def note_final_positions(bootstrap: str, history: History, group: str, places: Sequence[Place]) -> None:
    """Where a group stands when it is done."""
    consumer = asking_consumer(bootstrap, group)
    try:
        note_positions(history, consumer, group, places, is_final=True)
    finally:
        consumer.close()


def read_whole(
    bootstrap: str, isolation: Isolation, end_offsets: dict[Place, int]
) -> dict[Place, list[tuple[int, str]]]:
    consumer = reading_consumer(bootstrap, isolation, dict.fromkeys(end_offsets, 0))
    found: dict[Place, list[tuple[int, str]]] = {place: [] for place in end_offsets}
    missing = set(end_offsets)
    try:
        for _ in range(READ_POLLS_MAX):
            if not missing:
                return found
            for message in consumer.consume(READ_BATCH_MAX, POLL_S):
                error, place, offset = message.error(), place_of(message), offset_of(message)
                if error is None:
                    found[place].append((offset, value_in(message.value())))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif offset >= end_offsets[place]:
                    missing.discard(place)
        raise AssertionError(f"not read to their ends: {missing}")
    finally:
        consumer.close()
