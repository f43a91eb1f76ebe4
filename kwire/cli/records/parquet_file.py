"""Records as a Parquet file. It needs pyarrow, which is an optional dependency."""

from collections.abc import Iterable, Iterator
from typing import IO, Any

from kwire.cli.kafka.batch_decoding import RecordFields
from kwire.cli.records.record import InvalidInput, NewRecord

# Bounds of a row group: a table of that many rows or bytes is held in memory.
ROWS_PER_GROUP_MAX = 100_000
GROUP_BYTES_MAX = 64 * 1024 * 1024
ROWS_PER_READ = 10_000
COLUMNS = ("partition", "offset", "timestamp", "key", "value", "headers")


class PyarrowMissing(ValueError):
    def __init__(self) -> None:
        super().__init__("Parquet needs pyarrow, which is not installed: pip install 'kwire[parquet]'")


class ParquetWriter:
    """Writes records to a binary file as Parquet."""

    def __init__(self, file: IO[bytes]) -> None:
        self._arrow, parquet = _load()
        self._schema = _schema(self._arrow)
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self._bytes = 0

    def write(self, topic: str, partition: int, records: Iterable[RecordFields]) -> None:
        columns = self._columns
        for offset, timestamp_ms, key, value, headers in records:
            columns["partition"].append(partition)
            columns["offset"].append(offset)
            columns["timestamp"].append(timestamp_ms)
            columns["key"].append(key)
            columns["value"].append(value)
            columns["headers"].append(
                [{"key": name.decode(errors="replace"), "value": content} for name, content in headers]
            )
            self._bytes += len(key or b"") + len(value or b"")
        if len(columns["offset"]) >= ROWS_PER_GROUP_MAX or self._bytes >= GROUP_BYTES_MAX:
            self._write_group()

    def close(self) -> None:
        """Write the rest and the end of the file."""
        if self._columns["offset"]:
            self._write_group()
        self._writer.close()

    def _write_group(self) -> None:
        arrays = [self._arrow.array(self._columns[field.name], type=field.type) for field in self._schema]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._columns = {name: [] for name in COLUMNS}
        self._bytes = 0


def read_parquet(file: IO[bytes]) -> Iterator[NewRecord]:
    """Yield the records of a Parquet file. Raises InvalidInput."""
    arrow, parquet = _load()
    try:
        opened = parquet.ParquetFile(file)
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"not a Parquet file: {error}") from None
    names = opened.schema_arrow.names
    if "value" not in names or not set(names) <= set(COLUMNS):
        raise InvalidInput(f"the columns must be among {', '.join(COLUMNS)}, with value; got {', '.join(names)}")
    schema = _schema(arrow)
    wanted = arrow.schema([schema.field(name) for name in names])
    try:
        for batch in opened.iter_batches(batch_size=ROWS_PER_READ):
            table = arrow.Table.from_batches([batch]).cast(wanted)
            columns = {name: _values(arrow, table.column(name)) for name in names}
            for row in range(table.num_rows):
                yield _record(columns, row)
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"the file cannot be read: {error}") from None


def _record(columns: dict[str, list[Any]], row: int) -> NewRecord:
    def field(name: str) -> Any:
        values = columns.get(name)
        return None if values is None else values[row]

    headers = tuple((header["key"].encode(), header["value"]) for header in field("headers") or ())
    return NewRecord(field("key"), field("value"), headers, field("timestamp"), field("partition"))


def _values(arrow: Any, column: Any) -> list[Any]:
    """Return a column as Python values. Times are milliseconds: many are outside the range of `datetime`."""
    values: list[Any] = (column.cast(arrow.int64()) if arrow.types.is_timestamp(column.type) else column).to_pylist()
    return values


def _schema(arrow: Any) -> Any:
    header = arrow.struct([arrow.field("key", arrow.string(), nullable=False), arrow.field("value", arrow.binary())])
    return arrow.schema(
        [
            arrow.field("partition", arrow.int32()),
            arrow.field("offset", arrow.int64()),
            arrow.field("timestamp", arrow.timestamp("ms", tz="UTC")),
            arrow.field("key", arrow.binary()),
            arrow.field("value", arrow.binary()),
            arrow.field("headers", arrow.list_(header)),
        ]
    )


def _load() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise PyarrowMissing from None
    return pyarrow, pyarrow.parquet
