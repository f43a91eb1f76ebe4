"""Format strings, lines and files of records, without a server."""

import io
import os
import random
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kwire.cli.kafka.batch_decoding import RecordFields
from kwire.cli.records import files
from kwire.cli.records.files import READERS, WRITERS, format_of, new_file
from kwire.cli.records.format_string import FormatString, unescape
from kwire.cli.records.json_lines import decode_lines, encode_records
from kwire.cli.records.line_input import READ_BYTES, read_lines
from kwire.cli.records.record import InvalidInput, NewRecord
from tests.support.effort import examples

RECORD: RecordFields = (7, 1234, b"k", b"va\x00l", ((b"a", b"1"), (b"b", None), (b"c", b"")))
NULLS: RecordFields = (8, -1, None, None, ())

texts = st.text(max_size=20).map(str.encode)
contents = (
    st.none() | texts | st.binary(max_size=20) | st.sampled_from([b"", b'"', b",", b"\r\n", b"\r", b"null", b"\x00"])
)
header_names = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6).map(str.encode)
headers = st.lists(st.tuples(header_names, contents), max_size=3).map(tuple)
record_fields = st.tuples(st.integers(0, 2**62), st.integers(-1, 2**62), contents, contents, headers)
partitions = st.lists(st.tuples(st.integers(0, 5), st.lists(record_fields, max_size=5)), max_size=5)


def written(text: str, record: RecordFields = RECORD, null: bytes = b"") -> bytes:
    return FormatString(text, null).records("orders", 3, [record])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s", b"va\x00l"),
        (r"%t [%p] at %o: %k: %s\n", b"orders [3] at 7: k: va\x00l\n"),
        ("%T %S %K", b"1234 4 1"),
        ("%R%s", b"\x00\x00\x00\x04va\x00l"),
        ("%h", b"a=1,b=NULL,c="),
        (r"100%% \\ \x41\x0a\t\r\0\q", b"100% \\ A\n\t\r\x00q"),
        ("%t%%d", b"orders%d"),
        ("", b""),
    ],
)
def test_a_format_string_has_the_meaning_of_kcat(text: str, expected: bytes) -> None:
    assert written(text) == expected


def test_null_is_printed_as_nothing_unless_a_text_is_given() -> None:
    assert written("%k|%s|%K|%S|%R|%h", NULLS) == b"||-1|-1|\xff\xff\xff\xff|"
    assert written("%k|%s", NULLS, b"NULL") == b"NULL|NULL"


@pytest.mark.parametrize("text", ["%x", "%", "a %Z b"])
def test_an_unknown_field_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a field"):
        FormatString(text)


def test_values_are_printed_in_bulk_as_one_by_one() -> None:
    values = [b"a", None, b"", b"c%d"]
    for text in (r"%s\n", r"<%s>", "%s"):
        one_by_one = b"".join(written(text, (0, 0, None, value, ()), b"NULL") for value in values)
        assert FormatString(text, b"NULL").values(values) == one_by_one
    assert FormatString(r"%s %s").value_format is None


def test_escapes_of_delimiters() -> None:
    assert unescape(r"\t") == b"\t"
    assert unescape(r"%k\x2c,") == b"%k,,"


# Lines


def piped(chunks: list[bytes]) -> Iterator[int]:
    read, write = os.pipe()

    def feed() -> None:
        for chunk in chunks:
            os.write(write, chunk)
        os.close(write)

    thread = Thread(target=feed)
    thread.start()
    yield read
    thread.join()
    os.close(read)


@pytest.mark.parametrize("delimiter", [b"\n", b"\0", b"--", b"aab"])
def test_lines_are_those_of_split(delimiter: bytes) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(examples(200)):
        data = b"".join(rng.choice((b"a", b"b", b"-", delimiter, b"x" * 50)) for _ in range(rng.randrange(60)))
        cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
        chunks = [data[first:last] for first, last in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        expected = data.split(delimiter)
        if not expected[-1]:
            expected.pop()
        for descriptor in piped([chunk for chunk in chunks if chunk]):
            assert [line for lines in read_lines(descriptor, delimiter) for line in lines] == expected


def test_a_line_may_be_longer_than_a_read() -> None:
    long = b"x" * (3 * READ_BYTES + 17)
    for descriptor in piped([b"a\n" + long + b"\nb"]):
        assert [line for lines in read_lines(descriptor) for line in lines] == [b"a", long, b"b"]


def test_input_that_is_late_is_announced() -> None:
    read, write = os.pipe()
    os.write(write, b"one\ntw")
    lines = read_lines(read, linger_seconds=0.01)
    assert next(lines) == [b"one"]
    assert next(lines) == []
    os.write(write, b"o\n")
    assert next(lines) == [b"two"]
    os.close(write)
    assert list(lines) == []
    os.close(read)


# JSON lines


def decoded(line: str) -> NewRecord:
    (record,) = decode_lines([line.encode()], 1)
    return record


def test_a_json_line_may_have_everything() -> None:
    record = decoded(
        '{"key":"k","value":"v","headers":[{"key":"a","value":"1"},{"key":"b","value":null}],'
        '"timestamp":"2026-01-31T12:00:00Z","partition":2}'
    )
    assert record == NewRecord(b"k", b"v", ((b"a", b"1"), (b"b", None)), 1769860800000, 2)
    assert decoded('{"value":null,"headers":{"a":"1"}}') == NewRecord(None, None, ((b"a", b"1"),))
    assert decoded('{"value":{"x": [1,2.50]},"key":17}') == NewRecord(b"17", b'{"x": [1,2.50]}')
    assert decoded('{"value_base64":"AP8="}').value == b"\x00\xff"


def test_blank_lines_are_ignored() -> None:
    assert list(decode_lines([b"", b"  ", b'{"value":"a"}', b"\r"], 1)) == [NewRecord(None, b"a")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "truncated"),
        ("[]", "Expected `object`"),
        ("{}", "no value"),
        ('{"value":"a","valu":1}', "unknown field `valu`"),
        ('{"value":"a","value_base64":"AA=="}', "both value and value_base64"),
        ('{"value_base64":"?"}', "not base64"),
        ('{"value":"a","timestamp":"yesterday"}', "timestamp"),
        ('{"value":"a","partition":-1}', "not a partition"),
        ('{"value":"a","headers":[{"key":"h"}]}', "'h' has no value"),
        ('{"value":"\\ud800"}', "."),
    ],
)
def test_a_bad_json_line_is_refused_with_its_number(line: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"line 12: .*{reason}"):
        list(decode_lines([b'{"value":"a"}', line.encode()], 11))


# Files


def round_trip(name: str, groups: list[tuple[int, list[RecordFields]]], path: Path) -> list[NewRecord]:
    with open(path, "wb") as file:
        writer = WRITERS[name](file)
        for partition, records in groups:
            writer.write("orders", partition, records)
        writer.close()
    with open(path, "rb") as file:
        return list(READERS[name](file))


@pytest.mark.parametrize("name", files.FORMATS)
@settings(max_examples=examples(200), deadline=None)
@given(groups=partitions)
def test_a_file_reads_back_as_what_was_written(
    name: str, tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[int, list[RecordFields]]]
) -> None:
    path = tmp_path_factory.getbasetemp() / f"records-{os.getpid()}.{name}"
    expected = [
        NewRecord(key, value, headers, timestamp_ms, partition)
        for partition, records in groups
        for _, timestamp_ms, key, value, headers in records
    ]
    assert round_trip(name, groups, path) == expected


def test_json_lines_are_text_where_they_can_be() -> None:
    line = encode_records("orders", 0, [(1, 2, "ключ".encode(), b"\xff", ((b"h", b"\x80"),))]).decode()
    assert line == (
        '{"topic":"orders","partition":0,"offset":1,"timestamp":2,"key":"ключ","value_base64":"/w==",'
        '"headers":[{"key":"h","value_base64":"gA=="}]}\n'
    )


def csv_of(text: str) -> list[NewRecord]:
    return list(READERS[files.CSV](io.BytesIO(text.encode())))


def test_a_csv_file_of_another_program_needs_values_only() -> None:
    assert csv_of('value\na\n"b,\n"\n') == [NewRecord(None, b"a"), NewRecord(None, b"b,\n")]
    assert csv_of("key,value\nk,v\n") == [NewRecord(b"k", b"v")]
    assert csv_of("") == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("value,colour\n", "line 1: column 'colour' is not known"),
        ("key\n", "line 1: column 'value' is missing"),
        ("value\na,b\n", "line 2: 2 fields"),
        ("value,value_encoding\na,rot13\n", "line 2: value_encoding"),
        ("value,value_encoding\na,null\n", "line 2: value_encoding"),
        ("value,partition\na,x\n", "line 2: partition"),
        ("value,timestamp\na,x\n", "line 2: timestamp"),
        ("value,headers\na,x\n", "line 2: headers"),
        ('value\n"a\n', "line 2: "),
    ],
)
def test_a_bad_csv_file_is_refused_with_its_line(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        csv_of(text)


def test_a_file_that_is_not_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 not really")
    with open(path, "rb") as file, pytest.raises(InvalidInput, match="not a Parquet file"):
        list(READERS[files.PARQUET](file))


@pytest.mark.parametrize(
    "act", [lambda file: WRITERS[files.PARQUET](file), lambda file: next(READERS[files.PARQUET](file))]
)
def test_without_pyarrow_the_message_says_what_to_install(act: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"pip install 'kwire\[parquet\]'"):
        act(io.BytesIO())  # type: ignore[operator]


def test_the_name_of_a_file_says_its_format() -> None:
    assert format_of(None, Path("a.CSV")) == files.CSV
    assert format_of(files.PARQUET, Path("a.csv")) == files.PARQUET
    assert format_of(None, None) == files.JSON_LINES
    with pytest.raises(ValueError, match="--format"):
        format_of(None, Path("a.txt"))


def test_a_file_has_its_name_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with suppress(RuntimeError), new_file(path, may_replace=False) as file:
        file.write(b"half")
        assert not path.exists()
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    with new_file(path, may_replace=False) as file:
        file.write(b"whole")
    assert path.read_bytes() == b"whole"
    with pytest.raises(FileExistsError, match="--overwrite"), new_file(path, may_replace=False):
        pass
    with new_file(path, may_replace=True) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
