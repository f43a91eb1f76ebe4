"""The frame reader: the same frames come out however the bytes arrive, and memory stays within its bound."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.wire.errors import FrameTooLarge
from kwire.wire.frame import (
    LARGE_FRAME_READ_BYTES,
    POOLED_STEP_BYTES,
    SCRATCH_BYTES,
    SMALL_STEP_BYTES,
    Account,
    FrameReader,
    ReceiveMemory,
)

LARGEST = 8 * 1024 * 1024


def reader(limit_bytes: int = 64 * 1024 * 1024, largest: int = LARGEST) -> FrameReader:
    return FrameReader(ReceiveMemory(limit_bytes), largest)


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(frames: FrameReader, data: bytes) -> list[bytes]:
    """Give bytes as a socket would: as many at a time as the reader has room for."""
    out = []
    while data:
        room = frames.buffer()
        assert len(room) > 0
        count = min(len(room), len(data))
        room[:count] = data[:count]
        data = data[count:]
        del room
        frames.received(count)
        while (frame := frames.next_frame()) is not None:
            out.append(bytes(frame))
        frames.settle()
    return out


def test_frames_fed_byte_by_byte_come_out_whole() -> None:
    frames = reader()
    bodies = [b"", b"a", b"hello" * 100]
    out = [one for byte in framed(*bodies) for one in feed(frames, bytes((byte,)))]
    assert out == bodies


@given(
    st.lists(st.integers(0, 300) | st.integers(60_000, 300_000), max_size=8),
    st.lists(st.integers(200, 200_000), min_size=1, max_size=20),
)
def test_frames_do_not_depend_on_how_the_bytes_arrive(sizes: list[int], cuts: list[int]) -> None:
    bodies = [bytes((number,)) * size for number, size in enumerate(sizes)]
    frames = reader()
    data, out, turn = framed(*bodies), [], 0
    while data:
        cut = cuts[turn % len(cuts)]
        out += feed(frames, data[:cut])
        data, turn = data[cut:], turn + 1
    assert out == bodies


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    st.lists(st.integers(0, 4), min_size=1, max_size=5).filter(any),
)
def test_frames_left_unread_are_kept_over_a_settle(sizes: list[int], takes: list[int]) -> None:
    """A connection that may not handle more requests now stops in the middle of what has arrived."""
    bodies = [bytes((number,)) * size for number, size in enumerate(sizes)]
    memory = ReceiveMemory(64 * 1024 * 1024)
    frames, other = FrameReader(memory, LARGEST), FrameReader(memory, LARGEST)
    stream = framed(*bodies)
    frames.buffer()[: len(stream)] = stream
    frames.received(len(stream))
    out: list[bytes] = []
    turn = 0
    while len(out) < len(bodies):
        turn += 1
        for _ in range(takes[turn % len(takes)]):
            frame = frames.next_frame()
            if frame is None:
                break
            out.append(bytes(frame))
        frames.settle()
        # Another connection reads into the same scratch page meanwhile.
        feed(other, framed(b"\xff" * 5000))
    assert out == bodies


@pytest.mark.parametrize("size", [-1, -(2**31), LARGEST + 1, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_at_once(size: int) -> None:
    with pytest.raises(FrameTooLarge, match=str(size)):
        feed(reader(), struct.pack(">i", size))


def test_memory_grows_with_the_bytes_that_came_not_with_those_announced() -> None:
    memory = ReceiveMemory(64 * 1024 * 1024)
    frames = FrameReader(memory, LARGEST)
    feed(frames, struct.pack(">i", LARGEST) + b"x")
    assert memory.used_bytes == SMALL_STEP_BYTES
    feed(frames, bytes(SCRATCH_BYTES))
    assert memory.used_bytes <= 4 * SCRATCH_BYTES


def test_memory_grows_only_when_it_is_full() -> None:
    frames = reader()
    feed(frames, framed(bytes(LARGEST))[: SCRATCH_BYTES + 1])
    held = frames.held_bytes
    while frames.received_bytes < held - 1:
        feed(frames, bytes(min(100_000, held - 1 - frames.received_bytes)))
        assert frames.held_bytes == held
    feed(frames, bytes(1))
    assert frames.held_bytes == 2 * held


@pytest.mark.parametrize("is_referred_to", [False, True])
def test_a_large_frame_grows_in_place_unless_something_refers_to_its_memory(is_referred_to: bool) -> None:
    memory = ReceiveMemory(64 * 1024 * 1024)
    frames = FrameReader(memory, LARGEST)
    body = bytes(range(256)) * (LARGEST // 256)
    data = framed(body)
    feed(frames, data[:POOLED_STEP_BYTES])
    mapped = frames.buffer().obj
    kept = frames.buffer()[:1] if is_referred_to else None
    feed(frames, data[POOLED_STEP_BYTES : LARGEST // 2])
    assert (frames.buffer().obj is mapped) is not is_referred_to
    assert memory.used_bytes == frames.held_bytes == LARGEST
    assert len(frames.buffer()) == LARGE_FRAME_READ_BYTES
    del kept
    assert feed(frames, data[LARGEST // 2 :]) == [body]
    assert memory.used_bytes == 0


def test_memory_that_was_to_grow_is_given_back_with_the_rest() -> None:
    memory = ReceiveMemory(64 * 1024 * 1024)
    frames = FrameReader(memory, LARGEST)
    feed(frames, framed(bytes(LARGEST))[:POOLED_STEP_BYTES])
    assert memory.used_bytes == frames.held_bytes == 2 * POOLED_STEP_BYTES
    frames.close()
    assert memory.used_bytes == frames.held_bytes == 0


def test_an_idle_connection_holds_no_memory() -> None:
    memory = ReceiveMemory(64 * 1024 * 1024)
    frames = FrameReader(memory, LARGEST)
    feed(frames, framed(bytes(3_000_000)))
    assert memory.used_bytes == 0


def test_a_reader_starves_at_the_bound_and_goes_on_when_memory_is_free_again() -> None:
    memory = ReceiveMemory(3 * 1024 * 1024)
    first, second = FrameReader(memory, LARGEST), FrameReader(memory, LARGEST)
    feed(first, framed(bytes(2_000_000))[:1_500_000])
    body = bytes(2_000_000)
    stream = framed(body)
    while not second.is_starved:
        room = second.buffer()
        count = min(len(room), 100_000)
        room[:count] = stream[:count]
        stream = stream[count:]
        second.received(count)
        assert second.next_frame() is None
        second.settle()
        assert memory.used_bytes <= memory.limit_bytes + SCRATCH_BYTES
    assert stream
    first.close()
    second.settle()
    assert feed(second, stream) == [body]
    assert memory.used_bytes == 0


def test_a_copy_takes_the_place_of_the_frame_it_was_made_of() -> None:
    size = 1_000_000
    memory = ReceiveMemory(4 + size, size)
    one, other = FrameReader(memory, size), FrameReader(memory, size)
    data = framed(bytes(size))
    while data:
        room = one.buffer()
        count = min(len(room), len(data))
        room[:count], data = data[:count], data[count:]
        one.received(count)
        frame = one.next_frame()
        one.settle() if frame is None else None
    assert frame is not None
    assert one.reserve(size)
    # Beyond the frame there is no room, and none for others.
    assert not one.reserve(5)
    assert not other.reserve(1)
    one.settle()
    assert memory.used_bytes == one.account.used_bytes == size
    one.close()
    one.release(size)
    assert memory.used_bytes == one.account.used_bytes == 0
    assert other.reserve(1)


def test_a_large_frame_that_arrives_is_not_copied_into_larger_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    overdraw = ReceiveMemory.overdraw

    def counting_overdraw(memory: ReceiveMemory, size: int, account: Account) -> memoryview:
        taken.append(size)
        return overdraw(memory, size, account)

    monkeypatch.setattr(ReceiveMemory, "overdraw", counting_overdraw)
    frames = reader()
    body = bytes(range(256)) * (LARGEST // 256)
    assert feed(frames, framed(body, b"next")) == [body, b"next"]
    assert max(taken) <= POOLED_STEP_BYTES
    assert frames.account.used_bytes == 0


def test_memory_that_something_refers_to_is_copied_into_larger_memory() -> None:
    frames = reader()
    body = bytes(range(256)) * (LARGEST // 256)
    data = framed(body)
    assert feed(frames, data[: 3 * POOLED_STEP_BYTES]) == []
    kept = frames.buffer()[:0]
    assert feed(frames, data[3 * POOLED_STEP_BYTES :]) == [body]
    assert len(kept) == 0
    assert frames.account.used_bytes == 0


def test_memory_does_not_grow_beyond_the_bound() -> None:
    memory = ReceiveMemory(4 * POOLED_STEP_BYTES)
    frames = FrameReader(memory, LARGEST)
    feed(frames, framed(bytes(LARGEST))[: 2 * POOLED_STEP_BYTES])
    while not frames.is_starved:
        frames.received(len(frames.buffer()))
        frames.settle()
    assert memory.used_bytes <= memory.limit_bytes


def test_little_of_a_large_frame_is_read_at_once() -> None:
    frames = reader()
    feed(frames, framed(bytes(LARGEST))[: 3 * POOLED_STEP_BYTES])
    assert len(frames.buffer()) == LARGE_FRAME_READ_BYTES
    frames.close()
    feed(frames, framed(bytes(POOLED_STEP_BYTES - 4))[: SMALL_STEP_BYTES + 1])
    assert len(frames.buffer()) == POOLED_STEP_BYTES - SMALL_STEP_BYTES - 1
