"""kwire wire decode: frames of every kind in every shape that people have them in, and clear words on broken ones."""

import io
import json
import signal
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kwire.cli import main
from kwire.cli.wire.input import NotHex, bytes_of, hex_bytes
from kwire.wire.apis import API_VERSIONS, APIS, FETCH, HEARTBEAT, JOIN_GROUP, METADATA, PRODUCE
from kwire.wire.codec import encode_message
from kwire.wire.consumer_protocol import ConsumerProtocolSubscription
from kwire.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kwire.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kwire.wire.messages.metadata import MetadataResponse
from kwire.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kwire.wire.schema import Api
from storage.batch.format import ZSTD
from storage.batch.record_batch import Record, build_batch
from tests.wire.strategies import drawn

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _signals_as_before() -> Iterator[None]:
    """The program ends quietly when nobody reads it any more; the tests must not."""
    before = signal.getsignal(signal.SIGPIPE)
    yield
    signal.signal(signal.SIGPIPE, before)


HEARTBEAT_4 = HeartbeatRequest(group_id="g", generation_id=3, member_id="m-1", group_instance_id=None)


def request(api: Api, message: Any, version: int) -> bytes:
    tags = b"\x00" if version >= api.first_flexible else b""
    body = struct.pack(">hhih", api.key, version, 7, 2) + b"me" + tags + encode_message(message, version)
    return struct.pack(">i", len(body)) + body


def response(api: Api, message: Any, version: int) -> bytes:
    tags = b"\x00" if version >= api.first_flexible and api is not API_VERSIONS else b""
    body = struct.pack(">i", 7) + tags + encode_message(message, version)
    return struct.pack(">i", len(body)) + body


def decoded(capsys: Captured, *arguments: str, code: int = 0) -> str:
    assert main(["wire", "decode", *arguments]) == code
    told = capsys.readouterr()
    assert "Traceback" not in told.err
    assert bool(told.err) == bool(code)
    return told.out if not code else told.out + told.err


def test_a_request_is_printed_with_its_header_and_every_field(capsys: Captured) -> None:
    told = decoded(capsys, "--hex", request(HEARTBEAT, HEARTBEAT_4, 4).hex())
    assert told.splitlines() == [
        "frame 1  at byte 4  25 bytes  Heartbeat 4 request",
        "  correlation_id: 7",
        '  client_id: "me"',
        '  group_id: "g"',
        "  generation_id: 3",
        '  member_id: "m-1"',
        "  group_instance_id: null",
    ]


def test_every_served_kind_of_frame_is_printed(capsys: Captured) -> None:
    for api in APIS.values():
        version = api.last_version
        asked = b"".join(request(api, one, version) for one in drawn(api.request, version))
        assert f"{api.name} {version} request" in decoded(capsys, "--hex", asked.hex())
        answered = b"".join(response(api, one, version) for one in drawn(api.response, version))
        named = ("--response", "--api", api.name, "--version", str(version))
        assert f"{api.name} {version} response" in decoded(capsys, *named, "--hex", answered.hex())
        assert json.loads(decoded(capsys, *named, "--json", "--hex", answered.hex()).splitlines()[0])["api"] == api.name


def test_record_batches_are_unfolded(capsys: Captured) -> None:
    batch = build_batch([Record(b"k", b"v", 0, [("h", b"\xff")]), Record(None, None, 5)], compression=ZSTD)
    data = [PartitionProduceData(index=0, records=bytes(batch))]
    asked = ProduceRequest(acks=1, timeout_ms=1, topic_data=[TopicProduceData(name="t", partition_data=data)])
    told = decoded(capsys, "--hex", request(PRODUCE, asked, 9).hex())
    assert f"records: {len(batch)} bytes" in told
    assert "2 records  zstd" in told
    assert 'key "k"  value "v"  h=base64:/w==' in told
    assert "key null  value null" in told
    one = json.loads(decoded(capsys, "--json", "--hex", request(PRODUCE, asked, 9).hex()))
    (partition,) = one["body"]["topic_data"][0]["partition_data"]
    assert [record["value"] for record in partition["records"]["batches"][0]["records"]] == ["v", None]


def fetched(records: bytes) -> bytes:
    partition = PartitionData(
        partition_index=0, error_code=0, high_watermark=1, aborted_transactions=None, records=records
    )
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
    return response(FETCH, answer, 12)


FETCH_12 = ("--response", "--api", "fetch", "--version", "12")


def test_a_batch_at_the_end_of_a_fetch_may_be_cut_short(capsys: Captured) -> None:
    batch = bytes(build_batch([Record(b"k", b"v", 0)]))
    told = decoded(capsys, *FETCH_12, "--hex", fetched(batch + batch[:30]).hex())
    assert f"position {len(batch)}  30 bytes of an incomplete batch" in told


def test_a_batch_with_a_wrong_checksum_and_an_old_format_are_named(capsys: Captured) -> None:
    batch = build_batch([Record(b"k", b"v", 0)])
    batch[17] ^= 1
    assert "DOES NOT MATCH" in decoded(capsys, *FETCH_12, "--hex", fetched(bytes(batch)).hex())
    batch[16] = 1
    assert "message format 1" in decoded(capsys, *FETCH_12, "--hex", fetched(bytes(batch)).hex())


def test_error_codes_have_names_and_uuids_are_written_as_kafka_does(capsys: Captured) -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[])
    named = ("--response", "--api", "18", "--version", "0")
    assert "error_code: 35 UNSUPPORTED_VERSION" in decoded(
        capsys, *named, "--hex", response(API_VERSIONS, answer, 0).hex()
    )
    listing = drawn(MetadataResponse, 12)[-1]
    assert "AAAAAAAAAAAAAAAAAAAAAA" in decoded(capsys, "--hex", request(FETCH, _fetch_by_id(), 13).hex())
    assert decoded(
        capsys, "--response", "--api", "Metadata", "--version", "12", "--hex", response(METADATA, listing, 12).hex()
    )


def _fetch_by_id() -> Any:
    from kwire.wire.messages.fetch import FetchRequest, FetchTopic

    return FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic_id=bytes(16), partitions=[])])


def test_what_a_consumer_tells_its_group_is_unfolded(capsys: Captured) -> None:
    subscription = ConsumerProtocolSubscription(topics=["orders"], user_data=b"u")
    asked = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01" + encode_message(subscription, 1)),
            JoinGroupRequestProtocol(name="own", metadata=b"\x00\x01something else"),
        ],
    )
    told = decoded(capsys, "--hex", request(JOIN_GROUP, asked, 5).hex())
    assert 'topics: ["orders"]' in told
    assert 'metadata: "\\u0000\\u0001something else"' in told


def test_unknown_tags_are_shown(capsys: Captured) -> None:
    frame = request(HEARTBEAT, HEARTBEAT_4, 4)
    tagged = frame[:-1] + b"\x01\x4d\x02hi"
    told = decoded(capsys, "--hex", (struct.pack(">i", len(tagged) - 4) + tagged[4:]).hex())
    assert told.splitlines()[-2:] == ["  unknown tags:", '    77: "hi"']


# --- several frames, and choosing among them


def test_frames_that_follow_each_other_are_printed_one_by_one(capsys: Captured, tmp_path: Path) -> None:
    software = ApiVersionsRequest(client_software_name="kwire", client_software_version="1")
    path = tmp_path / "capture.bin"
    path.write_bytes(request(HEARTBEAT, HEARTBEAT_4, 4) + request(API_VERSIONS, software, 3))
    assert [line.split("  ")[-1] for line in decoded(capsys, str(path)).splitlines() if line.startswith("frame")] == [
        "Heartbeat 4 request",
        "ApiVersions 3 request",
    ]
    assert "Heartbeat" not in decoded(capsys, str(path), "--api", "api-versions")
    assert decoded(capsys, str(path), "--api", "ApiVersions", "--version", "2") == ""


def test_a_frame_without_its_size_can_be_given(capsys: Captured) -> None:
    assert "Heartbeat 4" in decoded(capsys, "--unframed", "--hex", request(HEARTBEAT, HEARTBEAT_4, 4)[4:].hex())


def test_standard_input_is_read(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(request(HEARTBEAT, HEARTBEAT_4, 4))))
    assert "Heartbeat 4" in decoded(capsys, "-")


# --- what is broken is named, with its place


def test_a_field_that_cannot_be_read_is_named_with_its_place(capsys: Captured) -> None:
    frame = bytearray(request(HEARTBEAT, HEARTBEAT_4, 0))
    place = frame.index(b"\x00\x03m-1")
    frame[place : place + 2] = b"\x7f\xff"
    told = decoded(capsys, "--hex", bytes(frame).hex() + request(HEARTBEAT, HEARTBEAT_4, 0).hex(), code=1)
    assert f"frame 1: at byte {place + 2}: HeartbeatRequest.member_id" in told
    assert "frame 2" in told
    assert told.count("MALFORMED") == 1


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ("0000000a 0fff 0000 00000001 ffff", "unknown API key 4095"),
        ("0000000a 000c 0063 00000001 ffff", "at byte 6: Heartbeat has no version 99, only 0-4"),
        ("00000004 000c 0004", "the request header.correlation_id"),
        ("00000010 000c", "at byte 0: the size field says 16 bytes, but 2 follow"),
        ("ffffffff 000c", "at byte 0: the size field says -1 bytes"),
        ("0000", "at byte 0: 2 bytes are too few for the size field of a frame"),
    ],
)
def test_a_frame_that_is_none_is_told(capsys: Captured, frame: str, words: str) -> None:
    assert words in decoded(capsys, "--hex", frame, code=1)


def test_bytes_behind_a_message_are_told(capsys: Captured) -> None:
    frame = request(HEARTBEAT, HEARTBEAT_4, 0) + b"\x00\x00"
    told = decoded(capsys, "--hex", (struct.pack(">i", len(frame) - 4) + frame[4:]).hex())
    assert "2 bytes follow after the last field" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--hex", "00", "--response"], "give --api and --version"),
        (["--hex", "00", "--response", "--api", "Fetch"], "give --api and --version"),
        (["--hex", "00", "--api", "Nothing"], "unknown API 'Nothing'"),
        (["--hex", "00", "--api", "4711"], "unknown API '4711'"),
        (["--hex", "00", "--api=--5"], "unknown API '--5'"),
        (["--hex", "00", "--api", "1" * 5000], "unknown API '111"),
        (["--hex", "00", "--api", "Fetch", "--version", "99"], "Fetch has no version 99"),
        (["--hex", "zz"], "'zz' is not hex"),
        (["--hex", "000"], "odd number"),
        (["--hex", ""], "the input is empty"),
        ([], "give exactly one input"),
        (["some", "--hex", "00"], "give exactly one input"),
        (["does-not-exist.bin"], "does-not-exist.bin"),
    ],
)
def test_what_cannot_be_run_says_why(capsys: Captured, arguments: list[str], words: str) -> None:
    assert words in decoded(capsys, *arguments, code=2)


# --- hex as people copy it

DATA = bytes(range(0x60, 0x85))

XXD = """\
00000000: 6061 6263 6465 6667 6869 6a6b 6c6d 6e6f  `abcdefghijklmno
00000010: 7071 7273 7475 7677 7879 7a7b 7c7d 7e7f  pqrstuvwxyz{|}~.
00000020: 8081 8283 84                             .....
"""
CANONICAL = """\
00000000  60 61 62 63 64 65 66 67  68 69 6a 6b 6c 6d 6e 6f  |`abcdefghijklmno|
00000010  70 71 72 73 74 75 76 77  78 79 7a 7b 7c 7d 7e 7f  |pqrstuvwxyz{|}~.|
00000020  80 81 82 83 84                                    |.....|
00000025
"""
WIRESHARK = """\
0000   60 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f   `abcdefghijklmno
0010   70 71 72 73 74 75 76 77 78 79 7a 7b 7c 7d 7e 7f   pqrstuvwxyz{|}~.
0020   80 81 82 83 84                                    .....
"""
OD = """\
000000 60 61 62 63 64 65 66 67 68 69 6a 6b 6c 6d 6e 6f
000010 70 71 72 73 74 75 76 77 78 79 7a 7b 7c 7d 7e 7f
000020 80 81 82 83 84
000025
"""


@pytest.mark.parametrize(
    "text",
    [
        XXD,
        CANONICAL,
        WIRESHARK,
        OD,
        DATA.hex(),
        DATA.hex().upper(),
        DATA.hex(" "),
        DATA.hex(":"),
        DATA.hex(" ", 4),
        "# a comment\n" + DATA.hex()[:20] + "\n" + DATA.hex()[20:],
        ", ".join(f"0x{one:02x}" for one in DATA),
        "".join(f"\\x{one:02x}" for one in DATA),
        "0x" + DATA.hex(),
    ],
)
def test_hex_is_read_in_the_shapes_that_programs_print(text: str) -> None:
    assert hex_bytes(text) == DATA
    assert bytes_of(text.encode()) == DATA


def test_letters_beside_a_dump_that_look_like_hex_are_not_read() -> None:
    assert hex_bytes("0000   61 62 20 63   ab c\n") == b"ab c"
    assert hex_bytes("00000000: 6162 2063                                ab c\n") == b"ab c"
    assert hex_bytes("00000000  61 62 20 63                                       |ab c|\n00000004\n") == b"ab c"


def test_lines_that_hexdump_leaves_out_are_filled_in() -> None:
    zeros = "00000000  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00  |................|"
    text = f"{zeros}\n*\n00000040  01  |.|\n00000041\n"
    assert hex_bytes(text) == bytes(64) + b"\x01"


def test_a_dump_with_a_missing_line_is_refused() -> None:
    lines = XXD.splitlines()
    with pytest.raises(NotHex, match="line 2: the dump continues at 0x20, but 0x10 bytes came before"):
        hex_bytes("\n".join([lines[0], lines[2]]))


def test_a_line_that_is_nearly_a_dump_is_refused_at_once() -> None:
    """Each digit could be part of any group: tried in all ways, this would never end."""
    with pytest.raises(NotHex, match="line 1"):
        hex_bytes(f"00000000: {'0' * 1000}!")


def test_a_frame_in_groups_of_four_digits_is_no_dump() -> None:
    assert hex_bytes("0000 000f 0012 0000 0000 0001") == bytes.fromhex("0000000f0012000000000001")
    assert hex_bytes("00 00 00 0f\n00 12") == bytes.fromhex("0000000f0012")


def test_bytes_that_are_no_text_are_themselves() -> None:
    frame = request(HEARTBEAT, HEARTBEAT_4, 4)
    assert bytes_of(frame) == frame
