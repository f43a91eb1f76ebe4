"""Records as CSV with a header line.

The columns `key_encoding` and `value_encoding` say how key and value are written: `text` (UTF-8), `base64`, or `null`.
Headers are one column with a JSON array.
"""

import base64
import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from kwire.cli.kafka.batch_decoding import RecordFields
from kwire.cli.records.json_lines import from_base64, headers_json, read_headers, timestamp_of
from kwire.cli.records.record import InvalidInput, NewRecord

COLUMNS = ("partition", "offset", "timestamp", "key", "key_encoding", "value", "value_encoding", "headers")
REQUIRED = ("value",)
# Bound of one field. Python's default of 128 KiB is less than a record may have.
FIELD_CHARACTERS_MAX = 512 * 1024 * 1024
TEXT, BASE64, NULL = "text", "base64", "null"


class CsvWriter:
    """Writes records to a binary file as CSV."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._write(COLUMNS)

    def write(self, topic: str, partition: int, records: Iterable[RecordFields]) -> None:
        rows = [
            (
                partition,
                offset,
                timestamp_ms,
                *_text(key),
                *_text(value),
                headers_json(headers).decode() if headers else "",
            )
            for offset, timestamp_ms, key, value, headers in records
        ]
        self._write(*rows)

    def close(self) -> None:
        """The caller closes the file."""

    def _write(self, *rows: Sequence[object]) -> None:
        text = io.StringIO(newline="")
        # The usual line ends of CSV (RFC 4180). With others the module does not quote all line breaks within fields.
        csv.writer(text, lineterminator="\r\n").writerows(rows)
        self._file.write(text.getvalue().encode())


def read_csv(file: IO[bytes]) -> Iterator[NewRecord]:
    """Yield the records of a CSV file. Raises InvalidInput with the number of the line."""
    csv.field_size_limit(FIELD_CHARACTERS_MAX)
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    rows = csv.reader(text, strict=True)
    try:
        names = next(rows, None)
        if names is None:
            return
        columns = _columns(names)
        for row in rows:
            if not row:
                continue
            if len(row) != len(names):
                raise InvalidInput(f"{len(row)} fields, but the first line has {len(names)} names")
            yield _record(row, columns)
    except (csv.Error, InvalidInput, UnicodeDecodeError) as error:
        raise InvalidInput(f"line {rows.line_num}: {error}") from None
    finally:
        text.detach()


def _columns(names: Sequence[str]) -> dict[str, int]:
    unknown = [name for name in names if name not in COLUMNS]
    missing = [name for name in REQUIRED if name not in names]
    if unknown or missing:
        wrong = f"column {unknown[0]!r} is not known" if unknown else f"column {missing[0]!r} is missing"
        raise InvalidInput(f"{wrong}; the columns are {', '.join(COLUMNS)}, of which only value is necessary")
    return {name: place for place, name in enumerate(names)}


def _record(row: Sequence[str], columns: dict[str, int]) -> NewRecord:
    def field(name: str) -> str:
        place = columns.get(name)
        return "" if place is None else row[place]

    partition = field("partition")
    if partition and not (partition.isdecimal() and len(partition) <= 10):
        raise InvalidInput(f"partition: {partition!r} is not a partition")
    return NewRecord(
        _content("key", field("key"), field("key_encoding") or (TEXT if "key" in columns else NULL)),
        _content("value", field("value"), field("value_encoding") or TEXT),
        read_headers(field("headers")) if field("headers") else (),
        timestamp_of(field("timestamp")) if field("timestamp") else None,
        int(partition) if partition else None,
    )


def _content(name: str, text: str, encoding: str) -> bytes | None:
    if encoding == TEXT:
        return text.encode()
    if encoding == BASE64:
        return from_base64(name, text)
    if encoding == NULL and not text:
        return None
    raise InvalidInput(f"{name}_encoding: expected text, base64, or null with an empty {name}, got {encoding!r}")


def _text(content: bytes | None) -> tuple[str, str]:
    if content is None:
        return "", NULL
    try:
        return content.decode(), TEXT
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), BASE64
