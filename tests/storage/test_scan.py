"""One segment file, whatever was done to it: every good batch is found, and what is bad is told for what it is."""

from random import Random

import pytest

from storage.batch.format import GZIP, HEADER, HEADER_BYTES, LENGTH_OVERHEAD
from storage.batch.record_batch import BatchHeader, Record, build_batch, parse_header
from storage.log.quarantine import QUARANTINES_MAX, Quarantine
from storage.segment.index import SparseIndex
from storage.segment.scan import Ending, ScanResult, SegmentScan, end_of_data, is_zero
from tests.support.batches import NOW_MS

ROOM = 700
EPOCH = range(12, 16)


class Segment:
    """Batches one behind the other from offset ``base`` on, and where each of them is."""

    def __init__(self, sizes: list[int], *, base: int = 100, codec: int = 0, chance: Random | None = None) -> None:
        chance = chance or Random(1)
        self.base = base
        self.data = bytearray()
        self.places: list[tuple[int, int, int]] = []  # position, end, base offset
        offset = base
        for size in sizes:
            values = [bytes(chance.randrange(1, 256) for _ in range(size)) for _ in range(chance.randint(1, 3))]
            self.put([Record(None, value, NOW_MS + offset) for value in values], offset, codec)
            offset += len(values)
        self.next_offset = offset

    def put(self, records: list[Record], offset: int, codec: int = 0) -> None:
        batch = build_batch(records, base_offset=offset, compression=codec, partition_leader_epoch=3)
        self.places.append((len(self.data), len(self.data) + len(batch), offset))
        self.data += batch


def scan(
    data: bytes | bytearray,
    base: int = 100,
    *,
    limit: int | None = None,
    is_same_boot: bool = True,
    known: tuple[Quarantine, ...] = (),
    clean_upto: int = 0,
    synced_upto: int = 0,
) -> tuple[ScanResult, list[BatchHeader]]:
    seen: list[BatchHeader] = []
    fetched = [0]
    view = memoryview(bytes(data))

    def fetch(start: int, end: int) -> None:
        assert start == fetched[0] or start == 0
        assert start < end <= len(view)
        fetched[0] = end

    scan = SegmentScan(
        view,
        base,
        index_interval_bytes=200,
        clean_upto=clean_upto,
        limit_offset=limit,
        is_same_boot=is_same_boot,
        synced_upto=synced_upto,
        known=known,
        fetch=fetch,
    )
    scanned = scan.run(lambda header, batch: seen.append(header))
    check_index(scanned, {header.base_offset for header in seen}, view)
    return scanned, seen


def check_index(scanned: ScanResult, offsets: set[int], view: memoryview) -> None:
    index: SparseIndex = scanned.index
    for offset, position in zip(index.offsets, index.positions, strict=True):
        assert parse_header(view, position).base_offset == index.base_offset + offset
        assert index.base_offset + offset in offsets


def found_offsets(seen: list[BatchHeader]) -> list[int]:
    return [header.base_offset for header in seen]


@pytest.mark.parametrize("room", [0, 1, HEADER_BYTES, ROOM, 3_000_000])
def test_a_whole_segment_is_walked_to_its_end(room: int) -> None:
    segment = Segment([10, 300, 1, 70])
    scanned, seen = scan(segment.data + bytes(room))
    assert (scanned.position, scanned.next_offset, scanned.ending) == (
        len(segment.data),
        segment.next_offset,
        Ending.CLEAN,
    )
    assert found_offsets(seen) == [place[2] for place in segment.places]
    assert (scanned.quarantined, scanned.torn_bytes, scanned.batch_count) == ([], 0, 4)
    assert scanned.first_timestamp == parse_header(segment.data).max_timestamp


def test_batches_without_records_are_good() -> None:
    segment = Segment([10])
    empty = bytearray(segment.data[:HEADER_BYTES])
    values = list(HEADER.unpack(empty))
    values[0], values[1], values[6], values[12] = segment.next_offset, HEADER_BYTES - LENGTH_OVERHEAD, 4, 0
    HEADER.pack_into(empty, 0, *values)
    from crc32c import crc32c

    values[4] = crc32c(empty[21:])
    HEADER.pack_into(empty, 0, *values)
    scanned, seen = scan(segment.data + empty + bytes(ROOM))
    assert (scanned.ending, len(seen), scanned.next_offset) == (Ending.CLEAN, 2, segment.next_offset + 5)


def judge_flip(segment: Segment, at: int, bit: int, room: int, *, is_same_boot: bool, limit: int | None) -> None:
    """One flipped bit: its batch is set apart, or damage at the end; every other batch is found."""
    data = bytearray(segment.data) + bytes(room)
    data[at] ^= 1 << bit
    scanned, seen = scan(data, limit=limit, is_same_boot=is_same_boot)
    number = next(
        (number for number, (start, end, _) in enumerate(segment.places) if start <= at < end), len(segment.places)
    )
    others = [place[2] for place in segment.places[:number] + segment.places[number + 1 :]]
    what = (at, bit, room, is_same_boot, limit)
    if number == len(segment.places):
        assert found_offsets(seen) == others, what  # in the empty space behind
        return
    start, end, offset = segment.places[number]
    if at - start in EPOCH:
        assert (scanned.ending, scanned.quarantined) == (Ending.CLEAN, []), what
        assert found_offsets(seen) == sorted([*others, offset]), what
        return
    assert found_offsets(seen) == others, what
    if number + 1 < len(segment.places):
        (one,) = scanned.quarantined
        assert (one.position, one.end_position) == (start, end), what
        assert (one.start_offset, one.end_offset) == (offset, segment.places[number + 1][2]), what
        assert one.reason, what
        assert scanned.ending is Ending.CLEAN, what
    else:
        assert (scanned.position, scanned.next_offset) == (start, offset), what
        # Zeros at the end of a compressed batch may be its own or what a cut write left: that cannot be told.
        is_clear = not data[start + 22] & 7 and data[end - 2]
        assert scanned.ending in ((Ending.DAMAGED,) if is_clear else (Ending.DAMAGED, Ending.TORN)), what


@pytest.mark.parametrize("is_same_boot", [True, False])
def test_every_flipped_bit_is_found(is_same_boot: bool) -> None:
    segment = Segment([10, 30, 20])
    for at in range(len(segment.data)):
        for bit in range(8):
            judge_flip(segment, at, bit, ROOM, is_same_boot=is_same_boot, limit=None)


@pytest.mark.parametrize("seed", range(6))
def test_flipped_bits_in_larger_segments_are_found(seed: int) -> None:
    chance = Random(seed)
    sizes = [chance.choice([1, 50, 700, 4000]) for _ in range(12)]
    segment = Segment(sizes, codec=chance.choice([0, GZIP]), chance=chance)
    for _ in range(150):
        room = chance.choice([0, ROOM, 70_000])
        limit = chance.choice([None, segment.next_offset]) if not room else None
        at = chance.randrange(len(segment.data))
        judge_flip(segment, at, chance.randrange(8), room, is_same_boot=chance.random() < 0.5, limit=limit)


def test_batches_of_equal_power_of_two_sizes_are_all_found() -> None:
    # A flipped bit of the length can then point to the begin of a later batch.
    segment = Segment([])
    for number in range(40):
        empty = len(build_batch([Record(None, b"v" * 100, NOW_MS)]))
        segment.put([Record(None, b"v" * (100 + 256 - empty), NOW_MS)], 100 + number)
    assert {end - start for start, end, _ in segment.places} == {256}
    segment.next_offset = 140
    for byte in range(8, 12):
        for bit in range(8):
            judge_flip(segment, 5 * 256 + byte, bit, ROOM, is_same_boot=True, limit=None)


def test_several_damaged_places_are_several_ranges() -> None:
    segment = Segment([40] * 12)
    data = bytearray(segment.data)
    for number in (0, 3, 4, 6, 8):
        data[segment.places[number][0] + 70] ^= 4
    data[segment.places[6][0] + 10] ^= 4  # this one lies about its length as well
    scanned, seen = scan(data)
    numbers = {place[2]: number for number, place in enumerate(segment.places)}
    assert [numbers[offset] for offset in found_offsets(seen)] == [1, 2, 5, 7, 9, 10, 11]
    assert [(one.position, one.end_position) for one in scanned.quarantined] == [
        (segment.places[first][0], segment.places[last][1]) for first, last in ((0, 0), (3, 4), (6, 6), (8, 8))
    ]
    again, _ = scan(data, known=tuple(scanned.quarantined))
    assert again.quarantined == scanned.quarantined


def test_a_batch_inside_a_value_is_not_taken_for_one_of_the_log() -> None:
    inner = build_batch([Record(None, b"inner", NOW_MS)], base_offset=5000)
    segment = Segment([])
    segment.put([Record(None, b"a" * 50, NOW_MS)], 100)
    segment.put([Record(None, bytes(inner) + b"tail", NOW_MS)], 101)
    segment.put([Record(None, b"b" * 50, NOW_MS)], 102)
    segment.put([Record(None, b"c" * 50, NOW_MS)], 103)
    data = bytearray(segment.data)
    data[segment.places[1][0] + 9] ^= 1  # its length is wrong, so what follows has to be searched for
    scanned, seen = scan(data)
    assert found_offsets(seen) == [100, 102, 103]
    assert [(one.start_offset, one.end_offset) for one in scanned.quarantined] == [(101, 102)]


def test_missing_bytes_in_the_middle_are_a_range() -> None:
    segment = Segment([40] * 5)
    start, end, offset = segment.places[2]
    for lost in (bytes(end - start), b""):
        data = segment.data[:start] + lost + segment.data[end:]
        scanned, seen = scan(data)
        assert found_offsets(seen) == [place[2] for place in segment.places if place[2] != offset]
        (one,) = scanned.quarantined
        assert (one.position, one.size_bytes) == (start, len(lost))
        assert (one.start_offset, one.end_offset) == (offset, segment.places[3][2])
        assert scan(data, known=(one,))[0].quarantined == [one]


def test_gaps_are_normal_where_compaction_was() -> None:
    segment = Segment([40] * 6)
    data = segment.data[: segment.places[1][0]] + segment.data[segment.places[3][0] :]
    scanned, seen = scan(data, clean_upto=segment.places[3][2])
    assert (scanned.quarantined, len(seen), scanned.ending) == ([], 4, Ending.CLEAN)
    scanned, _ = scan(data, clean_upto=segment.places[2][2])
    assert [(one.start_offset, one.size_bytes) for one in scanned.quarantined] == [(segment.places[1][2], 0)]
    # Also before the first batch, and before the last one.
    data = segment.data[segment.places[2][0] : segment.places[4][0]] + segment.data[segment.places[5][0] :]
    scanned, seen = scan(data, clean_upto=segment.next_offset)
    assert (scanned.quarantined, len(seen), scanned.ending) == ([], 3, Ending.CLEAN)


def test_a_gap_before_the_last_batch_is_damage_where_no_compaction_was() -> None:
    segment = Segment([40] * 3)
    data = segment.data[: segment.places[1][0]] + segment.data[segment.places[2][0] :]
    scanned, _ = scan(data + bytes(ROOM))
    assert (scanned.ending, scanned.next_offset) == (Ending.DAMAGED, segment.places[1][2])
    # The next segment bears witness.
    scanned, seen = scan(data, limit=segment.next_offset)
    assert (scanned.ending, len(seen), len(scanned.quarantined)) == (Ending.CLEAN, 2, 1)


@pytest.mark.parametrize("is_same_boot", [True, False])
@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("room", [0, ROOM])
def test_a_last_batch_torn_at_any_byte_is_torn(is_same_boot: bool, codec: int, room: int) -> None:
    segment = Segment([40, 60, 600], codec=codec)
    start, end, offset = segment.places[-1]
    for cut in range(start, end):
        data = segment.data[:cut] + (bytes(end - cut + room) if room else b"")
        scanned, seen = scan(data, is_same_boot=is_same_boot)
        if len(seen) == 3:
            assert not any(segment.data[cut:]), cut
            continue
        assert (scanned.position, scanned.next_offset) == (start, offset), cut
        if cut == end - 1 and room and cut % 512:
            assert scanned.ending is Ending.DAMAGED, cut  # a byte changed to zero: no write is cut there
            continue
        if not any(segment.data[start:cut]):
            assert scanned.ending is Ending.CLEAN, cut
            continue
        if is_same_boot and not room:
            # Space is reserved before a write, and a kill does not take it back: somebody cut the file.
            assert (scanned.ending, scanned.torn_bytes) == (Ending.DAMAGED, 0), cut
            continue
        assert scanned.ending is Ending.TORN, cut
        assert scanned.torn_bytes == len(segment.data[start:cut].rstrip(b"\0")), cut


def lose_sectors(segment: Segment, first: int, chance: Random) -> bytearray:
    """What a power cut leaves of a segment whose batches from number ``first`` on were not synced."""
    data = segment.data + bytes(ROOM)
    start = segment.places[first][0]
    sectors = range(start - start % 512, len(data), 512)
    for at in chance.sample(sectors, chance.randint(1, len(sectors))):
        lost_from = max(at, start)
        data[lost_from : at + 512] = bytes(len(data[lost_from : at + 512]))
    return data


@pytest.mark.parametrize("seed", range(5))
def test_behind_a_sector_lost_in_a_power_cut_everything_is_the_tail(seed: int) -> None:
    chance = Random(seed)
    for _ in range(200):
        segment = Segment([chance.choice([1, 100, 500, 3000]) for _ in range(5)], chance=chance)
        first = chance.randrange(4)
        data = lose_sectors(segment, first, chance)
        scanned, seen = scan(data, is_same_boot=False)
        # Up to the first batch that lost something, whatever is good behind it.
        whole = next(number for number, place in enumerate([*segment.places, (0, 0, -1)]) if place[2] == -1 or (
            data[place[0] : place[1]] != segment.data[place[0] : place[1]]
        ))  # fmt: skip
        assert first <= whole
        assert len(seen) == whole
        assert (scanned.quarantined, scanned.ending is Ending.DAMAGED) == ([], False)
        if whole < len(segment.places):
            assert (scanned.position, scanned.next_offset) == segment.places[whole][::2]
            # What was synced cannot be lost: the same bytes are damage then.
            synced, seen = scan(data, is_same_boot=False, synced_upto=segment.next_offset)
            assert synced.quarantined or synced.ending is not Ending.TORN
            good = [
                place[2] for place in segment.places if data[place[0] : place[1]] == segment.data[place[0] : place[1]]
            ]
            assert found_offsets(seen) == good


def test_bytes_after_empty_space_are_damage_after_a_kill() -> None:
    segment = Segment([40])
    data = segment.data + bytes(ROOM) + b"x"
    assert scan(data)[0].ending is Ending.DAMAGED
    assert scan(data, is_same_boot=False)[0].ending is Ending.TORN


def test_a_batch_that_reaches_into_the_next_segment_is_bad() -> None:
    segment = Segment([40] * 3)
    scanned, seen = scan(segment.data, limit=segment.next_offset - 1)
    assert (scanned.ending, len(seen)) == (Ending.DAMAGED, 2)


def test_too_many_damaged_places_end_the_walk() -> None:
    segment = Segment([9] * (2 * QUARANTINES_MAX + 10))
    data = bytearray(segment.data)
    for start, _, _ in segment.places[::2]:
        data[start + 70] ^= 1
    scanned, _ = scan(data)
    assert len(scanned.quarantined) == QUARANTINES_MAX
    assert scanned.ending is Ending.DAMAGED
    assert "ranges" in scanned.reason


def test_the_search_goes_over_many_chunks() -> None:
    first, last = Segment([50]), Segment([50], base=5000)
    for filler in (bytes(3_000_000), b"\2" * 2_500_000, Random(3).randbytes(2_200_000)):
        scanned, seen = scan(first.data + b"?" + filler + last.data)
        assert found_offsets(seen) == [100, 5000]
        assert scanned.quarantined[0].size_bytes == len(filler) + 1


def test_zeros_are_recognised_over_many_chunks() -> None:
    data = bytearray(3_000_000)
    assert is_zero(memoryview(data), 0, len(data))
    assert end_of_data(memoryview(data), 17) == 17
    data[2_500_000] = 1
    assert end_of_data(memoryview(data), 17) == 2_500_001
    assert not is_zero(memoryview(data), 0, len(data))
    assert is_zero(memoryview(data), 0, 2_500_000)
    assert is_zero(memoryview(data), 2_500_001, len(data))
