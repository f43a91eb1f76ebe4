"""Creates the event topics for the load, with a typical schema or with a schema that accepts any JSON."""

import json
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmark.processes import ChildFailed
from benchmark.servers import LOOPBACK, RunningServer

TIMEOUT_SECONDS = 30
# The event type of the load program, and the type of records without a type header.
EVENT_TYPE, RECORD_TYPE = "order.placed", "message"
ITEM: Mapping[str, object] = {
    "type": "object",
    "properties": {"sku": {"type": "string"}, "count": {"type": "integer", "minimum": 1}},
    "required": ["sku", "count"],
}
ORDER: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "orderId": {"type": "string", "pattern": "^o-[0-9]+$"},
        "customer": {"type": "string", "maxLength": 20},
        "total": {"type": "number", "minimum": 0},
        "currency": {"enum": ["EUR", "USD", "GBP"]},
        "items": {"type": "array", "maxItems": 100, "items": ITEM},
        "note": {"type": "string"},
    },
    "required": ["orderId", "customer", "total", "currency", "items"],
    "additionalProperties": False,
}
# An event topic must have a schema. This one accepts any JSON.
ANYTHING: Mapping[str, object] = {}
PAYLOADS = 1000


def make_event_topics(server: RunningServer, names: Sequence[str], schema: Mapping[str, object]) -> None:
    for name in names:
        schemas = [{"eventType": event_type, **schema} for event_type in (EVENT_TYPE, RECORD_TYPE)]
        _post(server, "/topics", {"name": name, "schemas": schemas})


def _post(server: RunningServer, path: str, body: object) -> None:
    url = f"http://{LOOPBACK}:{server.http_port}{path}"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS):
            pass
    except OSError as error:
        raise ChildFailed(f"POST {path}: {error}") from error


def order(number: int) -> str:
    """Return an order as JSON, in the same form as the load program (`load/events.go`)."""
    items = [{"sku": "sku-1001", "count": number % 9 + 1}, {"sku": "sku-1002", "count": 1}]
    value = {
        "orderId": f"o-{number:09d}",
        "customer": f"c-{number % 100_000:05d}",
        "total": number % 1000 + 0.5,
        "currency": "EUR",
        "items": items,
        "note": "leave it with the neighbours",
    }
    return json.dumps(value, separators=(",", ":"))


def write_payloads(path: Path) -> Path:
    """Write values for a producer to a file, one per line."""
    path.write_text("\n".join(order(number) for number in range(PAYLOADS)) + "\n")
    return path
