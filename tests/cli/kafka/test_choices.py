"""Decisions of the client without a server: partitions, ranges of a group, positions, retries."""

import random
from datetime import UTC, datetime

import pytest
from kafka.partitioner.default import murmur2

from kwire.cli.kafka.assignor import assign_ranges
from kwire.cli.kafka.partitioning import KEYS_MAX, Partitioner
from kwire.cli.kafka.positions import BEGIN, END, Position, parse_position
from kwire.cli.kafka.retries import PAUSE_MAX_SECONDS, Retries

NOW_MS = 1_800_000_000_000
NOON_MS = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize("count", [1, 2, 6, 100])
def test_a_key_goes_to_the_partition_that_javas_partitioner_chooses(count: int) -> None:
    rng = random.Random(count)
    partitioner = Partitioner(range(count))
    for _ in range(300):
        key = rng.randbytes(rng.randrange(40))
        assert partitioner.for_key(key) == (murmur2(key) & 0x7FFFFFFF) % count
        assert partitioner.for_key(key) == (murmur2(key) & 0x7FFFFFFF) % count


def test_the_partitions_of_keys_are_kept_for_a_bounded_number_of_keys() -> None:
    partitioner = Partitioner(range(3))
    for number in range(KEYS_MAX + 10):
        partitioner._by_key[b"%d" % number] = 0
        if number >= KEYS_MAX:
            break
    partitioner.for_key(b"one more")
    assert len(partitioner._by_key) <= KEYS_MAX


def test_records_without_a_key_stay_on_one_partition_until_the_next_batch() -> None:
    partitioner = Partitioner([0, 1, 2], random.Random(1))
    seen = set()
    for _ in range(100):
        first = partitioner.sticky
        assert partitioner.sticky == first
        partitioner.next_sticky()
        assert partitioner.sticky != first
        seen.add(first)
    assert seen == {0, 1, 2}


def test_a_topic_with_one_partition_needs_no_choice() -> None:
    partitioner = Partitioner([0])
    partitioner.next_sticky()
    assert partitioner.sticky == 0


def test_ranges_are_those_of_kafkas_documentation() -> None:
    # The example of Kafka's RangeAssignor: C0: t0p0 t0p1 t1p0 t1p1, C1: t0p2 t1p2.
    assigned = assign_ranges({"C0": ["t0", "t1"], "C1": ["t0", "t1"]}, {"t0": 3, "t1": 3})
    assert assigned == {"C0": {"t0": [0, 1], "t1": [0, 1]}, "C1": {"t0": [2], "t1": [2]}}


def test_every_partition_has_one_member_that_wants_its_topic() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(200):
        counts = {f"t{number}": rng.randrange(8) for number in range(rng.randint(1, 4))}
        wanted = {
            f"m{number}": rng.sample(list(counts), rng.randint(0, len(counts))) for number in range(rng.randint(1, 5))
        }
        assigned = assign_ranges(wanted, counts)
        assert assigned.keys() == wanted.keys()
        for topic, count in counts.items():
            owners = [(one, member) for member, topics in assigned.items() for one in topics.get(topic, ())]
            interested = [member for member, topics in wanted.items() if topic in topics]
            assert sorted(one for one, _ in owners) == (list(range(count)) if interested else [])
            assert all(member in interested for _, member in owners)
            sizes = [sum(member == owner for _, owner in owners) for member in interested]
            assert not sizes or max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", BEGIN),
        ("beginning", BEGIN),
        ("latest", END),
        ("END", END),
        ("0", Position("offset", 0)),
        ("9223372036854775807", Position("offset", 2**63 - 1)),
        ("-5", Position("before_end", 5)),
        ("-0", Position("before_end", 0)),
        ("10m", Position("time", NOW_MS - 600_000)),
        ("500ms", Position("time", NOW_MS - 500)),
        ("2w", Position("time", NOW_MS - 14 * 86_400_000)),
        ("@1700000000000", Position("time", 1_700_000_000_000)),
        ("2026-01-31T12:00:00Z", Position("time", int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000))),
        (
            "2026-01-31T12:00:00.123",
            Position("time", int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp() * 1000) + 123),
        ),
        ("2026-01-31T12:00:00+02:00", Position("time", int(datetime(2026, 1, 31, 10, tzinfo=UTC).timestamp() * 1000))),
        ("2026-01-31", Position("time", int(datetime(2026, 1, 31, tzinfo=UTC).timestamp() * 1000))),
    ],
)
def test_a_position_is_read(text: str, position: Position) -> None:
    assert parse_position(text, "--from", lambda: NOW_MS) == position


@pytest.mark.parametrize("text", ["", "soon", "--5", "1.5", "10x", "9223372036854775808", "2026-13-01", "@", "-"])
def test_another_text_is_not_a_position(text: str) -> None:
    with pytest.raises(ValueError, match="--until: expected earliest, latest, an offset"):
        parse_position(text, "--until", lambda: NOW_MS)


def test_retries_pause_longer_each_time_and_end_at_the_deadline() -> None:
    now = [0.0]
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    retries = Retries(10.0, sleep=sleep, monotonic=lambda: now[0])
    while retries.pause():
        pass
    assert sum(pauses) == pytest.approx(10.0)
    assert 0.08 <= pauses[0] <= 0.12
    assert max(pauses) <= 1.2 * PAUSE_MAX_SECONDS
