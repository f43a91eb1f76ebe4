"""``partition.metadata``: the file with the topic id of a partition folder, in Kafka's format."""

from __future__ import annotations

import base64
import re
from typing import Final

METADATA_NAME: Final = "partition.metadata"
TOPIC_ID_BYTES: Final = 16

# Kafka's rule for topic names. Other names could refer to paths outside the data directory.
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
_FORMAT: Final = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\s*")
_ID: Final = re.compile(rb"topic_id: ([A-Za-z0-9_-]{1,64})")


def partition_folder(topic: str, partition: int) -> str:
    if not _TOPIC.fullmatch(topic) or topic in (".", "..") or partition < 0:
        raise ValueError(f"partition {partition} of topic {topic!r} has no valid folder name")
    return f"{topic}-{partition}"


def encode_topic_id(topic_id: bytes) -> str:
    """A topic id in Kafka's text form."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def encode_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_topic_id(topic_id)}".encode()


def decode_metadata(data: bytes | None) -> bytes | None:
    """The topic id, or None if the file is missing or damaged."""
    match = _FORMAT.fullmatch(data or b"")
    return base64.urlsafe_b64decode(match[1] + b"==") if match else None


def topic_id_text(data: bytes | None) -> str:
    """The topic id as text, for the new name of a renamed folder; ``unknown`` if the file has none."""
    match = _ID.search(data or b"")
    return match[1].decode() if match else "unknown"
