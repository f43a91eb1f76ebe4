"""Bodies that are made to hold the event loop of a server process, and how long they do."""

import gzip
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.server import KwireProcess

NDJSON = "application/x-ndjson"
TIMEOUT_S = 60.0
# The defects held the loop for 0.4 to 10 seconds; on a busy machine the probe itself may see a tenth of a second.
STALL_SECONDS_MAX = 0.3


def post(process: KwireProcess, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{process.http_url}{path}", body, sent, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read()


def longest_stall_s(process: KwireProcess) -> float:
    with urllib.request.urlopen(f"{process.http_url}/metrics", timeout=TIMEOUT_S) as answer:
        for line in answer.read().decode().splitlines():
            name, _, value = line.partition(" ")
            if name == "kwire_loop_stall_seconds_max":
                return float(value)
    raise AssertionError("the server does not report its stalls")


BODIES = {
    "empty lines in gzip": (b"\n" * 100_000_000, {"Content_Type": NDJSON, "Content_Encoding": "gzip"}),
    "refused lines in gzip": (b"{}\n" * 33_000_000, {"Content_Type": NDJSON, "Content_Encoding": "gzip"}),
    "names of metadata": (
        b'{"event_type":"e","data":1,"metadata":{%b}}' % b",".join(b'"%x":""' % number for number in range(900_000)),
        {"Content_Type": "application/json"},
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_does_not_hold_the_loop(tmp_path: Path, name: str) -> None:
    body, headers = BODIES[name]
    if headers.get("Content_Encoding") == "gzip":
        body = gzip.compress(body, 6)
        assert len(body) < 150_000
    process = KwireProcess(
        tmp_path, settings={"message.max.bytes": "20000000", "kwire.http.max.body.bytes": "20000000"}
    )
    process.start()
    try:
        process.ready()
        post(process, "/rooms/r/events", b'{"event_type":"e","data":1}', Content_Type="application/json")
        status, answer = post(process, "/rooms/r/events", body, **headers)
        stall_s = longest_stall_s(process)
        print(f"{name}: {len(body)} bytes, longest stall {stall_s:.3f} s")
        assert stall_s < STALL_SECONDS_MAX
        assert status in (200, 413)
        last = json.loads(answer.splitlines()[-1])
        assert last["error"]["code"] in ("ExpandsTooMuch", "TooManyRefusedLines", "TooManyObjects")
        assert process.stop() == 0
    finally:
        process.kill()
