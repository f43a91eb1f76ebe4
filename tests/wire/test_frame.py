"""The frame reader: the same frames come out however the bytes arrive, and memory stays within its bound."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.wire.errors import FrameTooLarge
from kwire.wire.frame import SCRATCH_BYTES, SMALL_STEP_BYTES, FrameReader, ReceiveMemory

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
    assert one.hold(size)
    # Beyond the frame there is no room, and none for others.
    assert not one.hold(5)
    assert not other.hold(1)
    one.settle()
    assert memory.used_bytes == one.account.used_bytes == size
    one.close()
    one.release(size)
    assert memory.used_bytes == one.account.used_bytes == 0
    assert other.hold(1)
