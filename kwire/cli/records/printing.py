"""Prints fetched batches: with a format string, as JSON lines, or as YAML documents."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from kwire.cli.connection.kafka_client import TopicPartition
from kwire.cli.kafka.batch_decoding import RecordFields
from kwire.cli.kafka.fetcher import Batch
from kwire.cli.records.format_string import FormatString, headers_text
from kwire.cli.records.json_lines import encode_records, record_object


class Printer(Protocol):
    """Returns records as text."""

    def batch(self, batch: Batch) -> bytes: ...

    def records(self, partition: TopicPartition, records: Sequence[RecordFields]) -> bytes: ...


class FormatPrinter:
    """Prints records with a format string."""

    def __init__(self, format_string: FormatString) -> None:
        self._format = format_string

    def batch(self, batch: Batch) -> bytes:
        if self._format.value_format is not None:
            return self._format.values(batch.values())
        return self.records(batch.partition, batch.records())

    def records(self, partition: TopicPartition, records: Sequence[RecordFields]) -> bytes:
        return self._format.records(partition.topic, partition.partition, records)


class JsonPrinter:
    """Prints records as JSON lines."""

    def batch(self, batch: Batch) -> bytes:
        return self.records(batch.partition, batch.records())

    def records(self, partition: TopicPartition, records: Sequence[RecordFields]) -> bytes:
        return encode_records(partition.topic, partition.partition, records)


class YamlPrinter:
    """Prints records as YAML documents."""

    def batch(self, batch: Batch) -> bytes:
        return self.records(batch.partition, batch.records())

    def records(self, partition: TopicPartition, records: Sequence[RecordFields]) -> bytes:
        # Imported here, because the import takes longer than most commands run.
        import yaml

        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        objects = [record_object(partition.topic, partition.partition, record) for record in records]
        text: str = yaml.dump_all(objects, Dumper=dumper, sort_keys=False, allow_unicode=True, explicit_start=True)
        return text.encode()


class WidePrinter:
    """Prints a line with everything about each record, for people."""

    def batch(self, batch: Batch) -> bytes:
        return self.records(batch.partition, batch.records())

    def records(self, partition: TopicPartition, records: Sequence[RecordFields]) -> bytes:
        lines = []
        for offset, timestamp_ms, key, value, headers in records:
            place = f"{partition}@{offset}  {time_text(timestamp_ms)}  ".encode()
            shown = b"" if not headers else b"  {" + headers_text(headers) + b"}"
            lines.append(b"".join((place, _shown(key), b": ", _shown(value), shown, b"\n")))
        return b"".join(lines)


def time_text(timestamp_ms: int) -> str:
    """Return a timestamp as ISO 8601 with milliseconds, or as its number if it is outside the years 1 to 9999."""
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _shown(content: bytes | None) -> bytes:
    return b"-" if content is None else content
