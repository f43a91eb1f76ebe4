"""Files of records in the formats that can be exported and imported."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from kwire.cli.kafka.batch_decoding import RecordFields
from kwire.cli.records.csv_file import CsvWriter, read_csv
from kwire.cli.records.json_lines import decode_lines, encode_records
from kwire.cli.records.line_input import read_lines
from kwire.cli.records.parquet_file import ParquetWriter, read_parquet
from kwire.cli.records.record import NewRecord

JSON_LINES, CSV, PARQUET = "jsonl", "csv", "parquet"
FORMATS = (JSON_LINES, CSV, PARQUET)
_SUFFIXES = {".jsonl": JSON_LINES, ".ndjson": JSON_LINES, ".json": JSON_LINES, ".csv": CSV, ".parquet": PARQUET}
PART_SUFFIX = ".part"


class Writer(Protocol):
    """Writes records to a file. `close` writes the end of the file, but does not close it."""

    def write(self, topic: str, partition: int, records: Iterable[RecordFields]) -> None: ...

    def close(self) -> None: ...


class JsonLinesWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, topic: str, partition: int, records: Iterable[RecordFields]) -> None:
        self._file.write(encode_records(topic, partition, records))

    def close(self) -> None:
        """Nothing follows the last line."""


def read_json_lines(file: IO[bytes]) -> Iterator[NewRecord]:
    number = 1
    for lines in read_lines(file.fileno()):
        yield from decode_lines(lines, number)
        number += len(lines)


WRITERS: dict[str, Callable[[IO[bytes]], Writer]] = {
    JSON_LINES: JsonLinesWriter,
    CSV: CsvWriter,
    PARQUET: ParquetWriter,
}
READERS: dict[str, Callable[[IO[bytes]], Iterator[NewRecord]]] = {
    JSON_LINES: read_json_lines,
    CSV: read_csv,
    PARQUET: read_parquet,
}


def format_of(given: str | None, path: Path | None) -> str:
    """Return the format that an option names, or else the end of the file name. Raises ValueError."""
    if given is not None:
        return given
    if path is None:
        return JSON_LINES
    try:
        return _SUFFIXES[path.suffix.lower()]
    except KeyError:
        raise ValueError(
            f"{path}: the name does not say which format it is: use --format {'|'.join(FORMATS)}"
        ) from None


@contextmanager
def new_file(path: Path, *, may_replace: bool) -> Iterator[IO[bytes]]:
    """Write a file that gets its name only when it is complete. Raises FileExistsError unless it may be replaced."""
    if not may_replace and path.exists():
        raise FileExistsError(f"{path} exists already: --overwrite replaces it")
    part = path.with_name(path.name + PART_SUFFIX)
    with open(part, "wb") as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    part.replace(path)
