"""Reads events from event files (docs/event-files.md). The files have one line of JSON per event.

    DIR/data/<topic>/<date>/<group>/<topic>-<sequence>.json
    DIR/data/<topic>/<date>/<group>.ndjson.gz

The bytes of a payload are not decoded, so they are sent as they are in the file.
"""

import json
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from kwire.pipeline.replay.event import CannotReplay, Headers, Record, ReplayEvent
from kwire.pipeline.session import warehouse_uri

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DATA = "data"
SHOWN_MAX = 200


class _EventLine(msgspec.Struct):
    """The JSON object of an event. The payload is kept as undecoded bytes."""

    id: str
    timestamp: str
    type: str
    payload: msgspec.Raw
    metadata: dict[str, str] = {}
    key: str | dict[str, str] | None = None


_decode = msgspec.json.Decoder(_EventLine).decode


def event_of(topic: str, line: str) -> ReplayEvent:
    """Parse the event of a line, and add the headers of the event store.

    Raises CannotReplay if the line is not an event of the topic.
    """
    try:
        parsed = _decode(line.encode())
        name, dash, number = parsed.id.rpartition("-")
        if name != topic or not dash or not number.isascii() or not number.isdecimal() or int(number) < 1:
            raise CannotReplay(f"the event id {parsed.id[:SHOWN_MAX]!r} does not belong to topic {topic}")
        moment = datetime.fromisoformat(parsed.timestamp)
        if moment.tzinfo is None:
            raise CannotReplay(f"the timestamp has no time zone: {parsed.timestamp[:SHOWN_MAX]!r}")
        record = Record(_key(parsed.key), bytes(parsed.payload), _milliseconds(moment), _headers(topic, parsed))
    except CannotReplay:
        raise
    except (msgspec.MsgspecError, ValueError, UnicodeError, OverflowError) as error:
        raise CannotReplay(f"not a valid event: {error}") from error
    return ReplayEvent(0, int(number) - 1, record)


def _headers(topic: str, parsed: _EventLine) -> Headers:
    envelope = {
        "ce_specversion": "1.0",
        "content-type": "application/json",
        "ce_source": f"/topics/{topic}",
        "ce_type": parsed.type,
        "ce_time": parsed.timestamp,
        "ce_id": parsed.id,
    }
    return tuple((name, value.encode()) for name, value in {**envelope, **parsed.metadata}.items())


def _milliseconds(moment: datetime) -> int:
    whole_seconds = int(moment.replace(microsecond=0).timestamp())
    return whole_seconds * 1000 + moment.microsecond // 1000


def _key(key: Any) -> bytes | None:
    match key:
        case None:
            return None
        case str():
            return key.encode()
        case {"base64": str(text)}:
            return b64decode(text, validate=True)
    raise CannotReplay('the key is neither a string nor {"base64": …}')


def lines_of(spark: "SparkSession", directory: str, topic: str) -> "DataFrame":
    """Return the lines of a topic's files, unsorted, as a DataFrame with `path` and the columns of `FrameSource`."""
    from pyspark.sql import functions as F

    if topic.startswith(("_", ".")):
        raise CannotReplay(
            f"topic {topic}: Spark ignores files whose names begin with {topic[0]!r}, so they cannot be read"
        )
    _check_name(topic)
    folder = f"{_escaped(warehouse_uri(directory).rstrip('/'))}/{DATA}/{topic}"
    patterns = [f"{folder}/*/*/{topic}-*.json", f"{folder}/*/*.ndjson.gz"]
    lines = spark.read.text(_existing(spark, patterns, directory, topic), lineSep="\n")
    event_id = F.get_json_object("value", "$.id")
    return lines.select(
        F.lit(0).alias("kafka_partition"),
        (F.regexp_extract(event_id, r"-(\d{1,18})$", 1).try_cast("bigint") - 1).alias("kafka_offset"),
        F.get_json_object("value", "$.timestamp").try_cast("timestamp").alias("kafka_timestamp"),
        F.octet_length("value").alias("size_bytes"),
        F.col("value").alias("line"),
        F.col("_metadata.file_path").alias("path"),
    )


def events_of(topic: str, rows: Iterable[Any]) -> Iterator[ReplayEvent]:
    """Yield the events of sorted rows.

    An event may be both in a file of its own and in a packed file. Then it is yielded once.
    """
    last: ReplayEvent | None = None
    for row in rows:
        try:
            event = event_of(topic, row["line"])
            if last is not None and event.offset == last.offset:
                if event.record != last.record:
                    raise CannotReplay(f"another file has a different event {topic}-{event.offset + 1}")
                continue
        except CannotReplay as error:
            raise CannotReplay(f"{row['path']}: {error}") from error
        last = event
        yield event


def _existing(spark: "SparkSession", patterns: list[str], directory: str, topic: str) -> list[str]:
    """Return only the patterns that match a file. Spark would raise an error for a pattern without a match."""
    jvm: Any = spark._jvm
    configuration: Any = spark._jsc.hadoopConfiguration()
    found = []
    for pattern in patterns:
        path = jvm.org.apache.hadoop.fs.Path(pattern)
        if path.getFileSystem(configuration).globStatus(path):
            found.append(pattern)
    if not found:
        raise CannotReplay(f"{directory} contains no events of topic {topic}")
    return found


def _check_name(topic: str) -> None:
    """Check that the topic name is valid. A valid name contains no special characters of file patterns."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", topic):
        raise CannotReplay(f"{json.dumps(topic)} is not a valid topic name")


def _escaped(directory: str) -> str:
    """Return the directory name with the special characters of file patterns escaped."""
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", directory)
