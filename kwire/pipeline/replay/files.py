"""Events from their files, as the event store writes them (docs/event-files.md): a line of JSON for each.

    DIR/data/<topic>/<date>/<group>/<topic>-<sequence>.json
    DIR/data/<topic>/<date>/<group>.ndjson.gz

The payload of such an event is sent as the bytes it is.
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


class _Told(msgspec.Struct):
    """What a file says; the payload stays the bytes it is."""

    id: str
    timestamp: str
    type: str
    payload: msgspec.Raw
    metadata: dict[str, str] = {}
    key: str | dict[str, str] | None = None


_decode = msgspec.json.Decoder(_Told).decode


def event_of(topic: str, line: str) -> ReplayEvent:
    """CannotReplay if it is no event of the topic. Its headers are those that the event store gives an event."""
    try:
        told = _decode(line.encode())
        name, dash, number = told.id.rpartition("-")
        if name != topic or not dash or not number.isascii() or not number.isdecimal() or int(number) < 1:
            raise CannotReplay(f"it says it is {told.id[:SHOWN_MAX]!r}")
        moment = datetime.fromisoformat(told.timestamp)
        if moment.tzinfo is None:
            raise CannotReplay(f"its time has no zone: {told.timestamp[:SHOWN_MAX]!r}")
        record = Record(_key(told.key), bytes(told.payload), _milliseconds(moment), _headers(topic, told))
    except CannotReplay:
        raise
    except (msgspec.MsgspecError, ValueError, UnicodeError, OverflowError) as error:
        raise CannotReplay(f"it is no event: {error}") from error
    return ReplayEvent(0, int(number) - 1, record)


def _headers(topic: str, told: _Told) -> Headers:
    envelope = {
        "ce_specversion": "1.0",
        "content-type": "application/json",
        "ce_source": f"/topics/{topic}",
        "ce_type": told.type,
        "ce_time": told.timestamp,
        "ce_id": told.id,
    }
    return tuple((name, value.encode()) for name, value in {**envelope, **told.metadata}.items())


def _milliseconds(moment: datetime) -> int:
    whole_seconds = int(moment.replace(microsecond=0).timestamp())
    return whole_seconds * 1000 + moment.microsecond // 1000


def _key(told: Any) -> bytes | None:
    match told:
        case None:
            return None
        case str():
            return told.encode()
        case {"base64": str(text)}:
            return b64decode(text, validate=True)
    raise CannotReplay("its key is neither a text nor bytes in base64")


def lines_of(spark: "SparkSession", directory: str, topic: str) -> "DataFrame":
    """Columns `kafka_partition`, `kafka_offset`, `kafka_timestamp`, `size_bytes`, `line` and `path`; no order yet."""
    from pyspark.sql import functions as F

    if topic.startswith(("_", ".")):
        raise CannotReplay(f"Spark passes over files that are named like those of {topic}: {topic[0]!r} means hidden")
    _check_name(topic)
    folder = f"{_escaped(warehouse_uri(directory).rstrip('/'))}/{DATA}/{topic}"
    places = [f"{folder}/*/*/{topic}-*.json", f"{folder}/*/*.ndjson.gz"]
    lines = spark.read.text(_existing(spark, places, directory, topic), lineSep="\n")
    told = F.get_json_object("value", "$.id")
    return lines.select(
        F.lit(0).alias("kafka_partition"),
        (F.regexp_extract(told, r"-(\d{1,18})$", 1).try_cast("bigint") - 1).alias("kafka_offset"),
        F.get_json_object("value", "$.timestamp").try_cast("timestamp").alias("kafka_timestamp"),
        F.octet_length("value").alias("size_bytes"),
        F.col("value").alias("line"),
        F.col("_metadata.file_path").alias("path"),
    )


def events_of(topic: str, rows: Iterable[Any]) -> Iterator[ReplayEvent]:
    """Of rows in order; an event that is both in its own file and in a packed one comes once."""
    last: ReplayEvent | None = None
    for row in rows:
        try:
            event = event_of(topic, row["line"])
            if last is not None and event.offset == last.offset:
                if event.record != last.record:
                    raise CannotReplay(f"there is another event {topic}-{event.offset + 1}")
                continue
        except CannotReplay as error:
            raise CannotReplay(f"{row['path']}: {error}") from error
        last = event
        yield event


def _existing(spark: "SparkSession", places: list[str], directory: str, topic: str) -> list[str]:
    """Those of the patterns that match something: Spark takes no others."""
    jvm: Any = spark._jvm
    configuration: Any = spark._jsc.hadoopConfiguration()
    found = []
    for place in places:
        path = jvm.org.apache.hadoop.fs.Path(place)
        if path.getFileSystem(configuration).globStatus(path):
            found.append(place)
    if not found:
        raise CannotReplay(f"there are no events of {topic} in {directory}")
    return found


def _check_name(topic: str) -> None:
    """Topics have no characters that mean something in a pattern; whatever else was asked for is no topic."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", topic):
        raise CannotReplay(f"{json.dumps(topic)} is no name of a topic")


def _escaped(directory: str) -> str:
    """A directory may have such characters in its name."""
    return re.sub(r"[][{}*?\\]", r"\\\g<0>", directory)
