"""Formats each batch and each record as one line of text. Control characters are escaped to protect the terminal."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

from kwire.cli.framework.printable import printable
from kwire.cli.log.batches import Region
from kwire.wire.record_batch_spec import CODECS, CONTROL_TYPES, TIMESTAMP_TYPES


def batch_line(region: Region) -> str:
    header = region.batch.header
    last = header.base_offset + header.last_offset_delta
    parts = [
        f"offset {header.base_offset}" if last == header.base_offset else f"offsets {header.base_offset}..{last}",
        f"position {region.position}",
        f"{region.size_bytes} bytes",
        f"{header.record_count} record{'' if header.record_count == 1 else 's'}",
        CODECS[header.compression] if header.compression < len(CODECS) else f"codec {header.compression}",
        f"{TIMESTAMP_TYPES[header.timestamp_type]} {time_text(header.max_timestamp)}",
        f"epoch {header.partition_leader_epoch}",
    ]
    if header.producer_id >= 0:
        parts.append(f"producer {header.producer_id}/{header.producer_epoch} sequence {header.base_sequence}")
    if header.is_transactional:
        parts.append("transactional")
    if header.is_control:
        parts.append("control")
    parts.append(f"crc {header.crc:08x}" if not region.problem else f"CRC {header.crc:08x} DOES NOT MATCH")
    return "  ".join(parts)


def region_line(region: Region) -> str:
    prefix = "DAMAGE: " if region.is_damage else ""
    return f"position {region.position}  {region.size_bytes} bytes  {prefix}{region.problem}"


def record_line(record: dict[str, Any]) -> str:
    parts = [f"  {record['offset']}", time_text(record["timestamp"])]
    if "control_type" in record:
        parts.append(CONTROL_TYPES.get(record["control_type"], f"control {record['control_type']}"))
    elif "decoded" in record:
        parts.append(printable(json.dumps(record["decoded"], ensure_ascii=False, default=bytes_text)))
    else:
        parts += [f"key {bytes_text(record['key'])}", f"value {bytes_text(record['value'])}"]
    parts += [f"{printable(key)}={bytes_text(value)}" for key, value in record["headers"]]
    return "  ".join(parts)


def bytes_text(data: bytes | None) -> str:
    """Return the bytes as quoted text if they are UTF-8, otherwise as base64."""
    if data is None:
        return "null"
    try:
        return printable(json.dumps(data.decode(), ensure_ascii=False))
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(data).decode()


def plain_bytes(data: bytes | None) -> str | dict[str, str] | None:
    """Return the bytes as a JSON value: a string if they are UTF-8, otherwise `{"base64": …}`."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def time_text(timestamp_ms: int) -> str:
    if timestamp_ms < 0:
        return "-" if timestamp_ms == -1 else str(timestamp_ms)
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
