"""WebSocket frames: read whole, byte by byte, with others behind them, and compared with the `websockets` package."""

from collections.abc import Iterable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from websockets.exceptions import PayloadTooBig, ProtocolError
from websockets.frames import Close, CloseCode, Frame, Opcode
from websockets.protocol import Protocol, Side, State
from websockets.utils import accept_key

from kwire.web.streaming import websocket_frames as socket_frames
from kwire.web.streaming.websocket_frames import (
    BAD_DATA,
    BINARY,
    CLOSE,
    FRAMES_PER_CHUNK,
    NO_CODE,
    PARTS_MAX,
    PING,
    PONG,
    PROTOCOL_ERROR,
    TEXT,
    FrameReader,
    Message,
    accept_of,
    answer_to_close,
    close_frame,
    frame,
    text_frame,
    unmasked,
    unmasked_in_python,
    verified_mask,
)
from tests.support.effort import examples

BOUND = 100_000
HEAD_BYTES_MAX = 14


def sent(opcode: int, payload: bytes, fin: bool = True, mask: bytes = b"\x01\x02\x03\x04") -> bytes:
    """A frame as a client sends it."""
    size = len(payload)
    if size < 126:
        head = bytes((fin << 7 | opcode, 0x80 | size))
    elif size < 65536:
        head = bytes((fin << 7 | opcode, 0x80 | 126)) + size.to_bytes(2, "big")
    else:
        head = bytes((fin << 7 | opcode, 0x80 | 127)) + size.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))


def read(data: bytes, sizes: Iterable[int] = (), bytes_max: int = BOUND) -> tuple[list[tuple[int, bytes]], FrameReader]:
    """Everything that comes out when the bytes come in pieces of these sizes; the last piece is the rest."""
    reader, position = FrameReader(bytes_max), 0
    found: list[Message] = []
    for size in sizes:
        found += reader.feed(data[position : position + size])
        position += size
    found += reader.feed(data[position:])
    while reader.has_more:
        found += reader.feed(b"")
    return [(opcode, bytes(payload)) for opcode, payload in found], reader


@pytest.mark.parametrize("size", [0, 1, 3, 125, 126, 127, 65535, 65536, 70_000])
def test_a_text_of_every_kind_of_length_is_read(size: int) -> None:
    data = sent(TEXT, b"x" * size)
    assert read(data)[0] == [(TEXT, b"x" * size)]
    assert read(data + data)[0] == [(TEXT, b"x" * size)] * 2


def test_frames_are_read_byte_by_byte() -> None:
    data = sent(TEXT, b"one") + sent(PING, b"p") + sent(TEXT, "zwölf".encode() * 30) + sent(CLOSE, b"\x03\xe8bye")
    found, reader = read(data, [1] * len(data))
    assert found == [(TEXT, b"one"), (PING, b"p"), (TEXT, "zwölf".encode() * 30), (CLOSE, b"\x03\xe8bye")]
    assert reader.failure is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from([TEXT, BINARY, PING, PONG]), st.text(max_size=200), st.binary(min_size=4, max_size=4)
        ),
        max_size=8,
    ),
    st.lists(st.integers(min_value=1, max_value=50), max_size=60),
)
def test_however_the_bytes_are_cut_the_same_messages_come_out(
    frames: list[tuple[int, str, bytes]], sizes: list[int]
) -> None:
    frames = [(opcode, text[:30] if opcode >= CLOSE else text, mask) for opcode, text, mask in frames]
    data = b"".join(sent(opcode, text.encode(), mask=mask) for opcode, text, mask in frames)
    found, reader = read(data, sizes)
    assert found == [(opcode, text.encode()) for opcode, text, _ in frames]
    assert reader.failure is None


def test_a_message_in_pieces_is_put_together_and_control_frames_may_stand_between() -> None:
    text = "ä".encode()
    data = (
        sent(TEXT, text[:1], fin=False)
        + sent(PING, b"now")
        + sent(0, b"", fin=False)
        + sent(0, text[1:])
        + sent(BINARY, b"\xff", fin=False)
        + sent(0, b"\xfe")
    )
    assert read(data)[0] == [(PING, b"now"), (TEXT, text), (BINARY, b"\xff\xfe")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(b"\x81\x02hi", 1002, id="not masked"),
        pytest.param(b"\xc1\x80\0\0\0\0", 1002, id="a reserved bit"),
        pytest.param(sent(3, b""), 1002, id="an unknown data opcode"),
        pytest.param(sent(11, b""), 1002, id="an unknown control opcode"),
        pytest.param(sent(PING, b"", fin=False), 1002, id="a control frame in pieces"),
        pytest.param(sent(PING, b"x" * 126), 1002, id="a long control frame"),
        pytest.param(sent(0, b"x"), 1002, id="goes on with nothing"),
        pytest.param(sent(TEXT, b"x", fin=False) + sent(TEXT, b"x"), 1002, id="a text inside a text"),
        pytest.param(sent(TEXT, b"x", fin=False) + sent(BINARY, b"x"), 1002, id="binary inside a text"),
        pytest.param(sent(TEXT, b"\xff"), 1007, id="not UTF-8"),
        pytest.param(sent(TEXT, b"\xc3", fin=False) + sent(0, b"x"), 1007, id="not UTF-8 in pieces"),
        pytest.param(b"\x81\xff\x80" + bytes(11), 1009, id="a length beyond 2^63"),
        pytest.param(b"\x81\xff" + (BOUND + 1).to_bytes(8, "big") + bytes(4), 1009, id="larger than allowed"),
        pytest.param(sent(BINARY, b"x" * BOUND, fin=False) + sent(0, b"x"), 1009, id="larger than allowed, in pieces"),
    ],
)
def test_a_broken_rule_has_its_close_code_and_what_came_before_counts(data: bytes, code: int) -> None:
    found, reader = read(sent(TEXT, b"before") + data + sent(TEXT, b"behind"))
    assert found == [(TEXT, b"before")]
    assert reader.failure is not None
    assert reader.failure.code == code
    assert reader.feed(sent(TEXT, b"more")) == []


def test_so_many_frames_are_taken_at_once_and_the_rest_later() -> None:
    count = FRAMES_PER_CHUNK * 2 + 1
    reader = FrameReader(BOUND)
    found = reader.feed(b"".join(sent(TEXT, b"%d" % number) for number in range(count)) + sent(TEXT, b"half")[:-1])
    portions = [len(found)]
    for more in (sent(TEXT, b"half")[-1:] + sent(TEXT, b"late"), b""):
        assert reader.has_more
        found += reader.feed(more)
        portions.append(len(found))
    assert not reader.has_more
    assert portions == [FRAMES_PER_CHUNK, FRAMES_PER_CHUNK * 2, count + 2]
    assert [bytes(payload) for _, payload in found] == [*(b"%d" % number for number in range(count)), b"half", b"late"]


def test_a_message_in_crumbs_does_not_pile_up_as_crumbs() -> None:
    data = sent(TEXT, b"x" * (PARTS_MAX * 3))
    reader, found = FrameReader(BOUND), []
    for index in range(len(data)):
        found += reader.feed(data[index : index + 1])
        assert len(reader._parts) <= PARTS_MAX
    assert [bytes(payload) for _, payload in found] == [b"x" * (PARTS_MAX * 3)]


def test_a_compiled_mask_is_used_only_if_it_does_what_ours_does() -> None:
    def good(mask: bytes, payload: bytearray) -> None:
        payload[:] = unmasked_in_python(mask, payload)

    def does_nothing(mask: bytes, payload: bytearray) -> None:
        pass

    def wants_more(mask: bytes, payload: bytearray) -> None:
        raise TypeError("three arguments are wanted")

    assert verified_mask(good) is good
    assert verified_mask(does_nothing) is None
    assert verified_mask(wants_more) is None
    assert verified_mask(None) is None


def test_a_frame_that_is_too_large_is_refused_before_its_payload_has_come() -> None:
    _, reader = read(b"\x82\xff" + (2**40).to_bytes(8, "big") + bytes(4))
    assert reader.failure is not None
    assert reader.failure.code == 1009


frames_with_flaws = st.lists(
    st.builds(
        lambda first, second, payload: (
            bytes((first, 0x80 | len(payload) if second else len(payload))) + bytes(4) + payload
        ),
        st.sampled_from([0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8A, 0x09, 0x83, 0x8B, 0xC1, 0xA2]),
        st.integers(min_value=0, max_value=20),
        st.binary(max_size=20).map(bytes.hex).map(str.encode),
    ),
    max_size=6,
).map(b"".join)


@given(frames_with_flaws | st.binary(max_size=300))
@example(b"\x00\xfe\x01")
@settings(max_examples=examples(300))
def test_the_websockets_package_finds_the_same_frames_and_the_same_flaws(data: bytes) -> None:
    found, reader = read(data)
    if any(opcode == CLOSE for opcode, _ in found) or (reader.failure is not None and reader.failure.code == 1007):
        # Theirs reads nothing behind a close, and leaves it to others to see whether a text is one.
        return
    theirs = Protocol(Side.SERVER, state=State.OPEN, max_size=BOUND)
    theirs.receive_data(data)
    frames = [event for event in theirs.events_received() if isinstance(event, Frame)]
    assert whole_messages(frames) == found
    if theirs.parser_exc is not None:
        assert reader.failure is not None
        assert isinstance(theirs.parser_exc, PayloadTooBig if reader.failure.code == 1009 else ProtocolError)
    elif reader.failure is not None:
        # Ours says so when it has seen the head of the frame, theirs when it has all of it.
        theirs.receive_data(bytes(BOUND + HEAD_BYTES_MAX))
        assert theirs.parser_exc is not None


def whole_messages(frames: list[Frame]) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    kind, begun = 0, b""
    for one in frames:
        if one.opcode.value >= CLOSE:
            found.append((one.opcode.value, bytes(one.data)))
            continue
        kind = one.opcode.value or kind
        begun += one.data
        if one.fin:
            found.append((kind, begun))
            begun = b""
    return found


@given(st.integers(min_value=0, max_value=2000), st.sampled_from([TEXT, BINARY]))
def test_what_is_framed_here_is_read_by_the_websockets_package(size: int, opcode: int) -> None:
    payload = b"x" * (size if size < 1990 else 70_000)
    made = text_frame(payload) if opcode == TEXT else frame(opcode, payload)
    assert made == frame(opcode, payload)
    assert made == Frame(Opcode(opcode), payload).serialize(mask=False)


@given(st.binary(max_size=2000), st.binary(min_size=4, max_size=4))
def test_both_ways_to_unmask_agree(payload: bytes, mask: bytes) -> None:
    expected = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    assert unmasked(mask, bytearray(payload)) == expected
    assert unmasked_in_python(mask, bytearray(payload)) == expected


def test_the_fast_way_to_unmask_is_there() -> None:
    assert vars(socket_frames)["_mask_in_place"] is not None


@given(st.binary(max_size=125))
def test_a_close_frame_is_answered_as_the_websockets_package_judges_it(payload: bytes) -> None:
    answer = answer_to_close(bytearray(payload))
    try:
        theirs = Close.parse(payload)
        if payload:
            theirs.check()
    except (ProtocolError, UnicodeDecodeError):
        assert answer.code in (BAD_DATA, PROTOCOL_ERROR)
    else:
        assert answer.code == (NO_CODE if theirs.code == CloseCode.NO_STATUS_RCVD else theirs.code)


def test_the_reason_of_a_close_frame_is_cut_between_two_characters() -> None:
    made = close_frame(1009, "ä" * 100)
    assert len(made) <= 127
    assert made[4:].decode() == "ä" * 61
    assert close_frame(NO_CODE) == b"\x88\x00"


def test_a_key_is_answered_as_the_websockets_package_answers_it() -> None:
    key = "dGhlIHNhbXBsZSBub25jZQ=="
    assert accept_of(key) == accept_key(key) == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("key", ["", "x", "dGhlIHNhbXBsZSBub25jZQ", "dGhl", "ä" * 16, "dGhlIHNhbXBsZSBub25jZQ== x"])
def test_what_is_no_key_is_not_answered(key: str) -> None:
    assert accept_of(key) is None
