"""The nginx configuration of docs/operating.md, run in front of a real server."""

import json
import subprocess
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from kwire.testing.ports import unused_port
from tests.support.pages.blocks import blocks_of
from tests.support.server import HOST, KwireProcess, wait_until

pytestmark = pytest.mark.needs_nginx

WAIT_S = 20.0


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory, kwire: KwireProcess) -> Iterator[str]:
    """The address of nginx, HOST:PORT."""
    folder = tmp_path_factory.mktemp("nginx")
    (block,) = [block for block in blocks_of("docs/operating.md") if block.kind == "nginx"]
    address = f"{HOST}:{unused_port()}"
    text = block.content.replace("127.0.0.1:8080", address).replace("127.0.0.1:8082", f"{HOST}:{kwire.http_port}")
    assert address in text
    (folder / "nginx.conf").write_text(text)
    command = ["nginx", "-p", str(folder), "-c", "nginx.conf", "-g", "daemon off;"]
    with (folder / "nginx.log").open("wb") as log, subprocess.Popen(command, stderr=log) as nginx:
        try:
            wait_until(lambda: is_ready(address) or nginx.poll() is not None, "nginx passes requests on")
            assert nginx.poll() is None, (folder / "nginx.log").read_text()
            yield address
        finally:
            nginx.terminate()


def is_ready(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/readyz", timeout=WAIT_S) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def publish(address: str, room: str, text: str) -> None:
    body = json.dumps({"event_type": "message", "data": {"text": text}}).encode()
    request = Request(f"http://{address}/rooms/{room}/events", body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=WAIT_S) as answer:
        assert answer.status == 201


@pytest.mark.parametrize("accepted", ["application/x-ndjson", "text/event-stream"])
def test_events_of_a_stream_arrive_one_by_one(proxy: str, accepted: str) -> None:
    room = f"proxied-{accepted.partition('/')[0]}"
    url = f"http://{proxy}/rooms/{room}/subscribe?from_offset=0"
    with urlopen(Request(url, headers={"Accept": accepted}), timeout=WAIT_S) as stream:
        for number in range(3):
            publish(proxy, room, f"event {number}")
            # The next is published when this one has arrived: a proxy that collects events would wait for ever.
            while f"event {number}".encode() not in stream.readline():
                pass


def test_a_websocket_and_a_page_of_the_same_origin(proxy: str) -> None:
    origin = Origin(f"http://{proxy}")
    with connect(f"ws://{proxy}/rooms/proxied-socket/subscribe?from_offset=0", origin=origin) as socket:
        publish(proxy, "proxied-socket", "through the socket")
        while "through the socket" not in str(socket.recv(WAIT_S)):
            pass


def test_every_line_of_a_stream_of_lines_is_answered(proxy: str) -> None:
    lines = "".join(json.dumps({"event_type": "message", "data": number}) + "\n" for number in range(3))
    command = ["curl", "-sN", "-T", "-", "-X", "POST", f"http://{proxy}/rooms/proxied-lines/events"]
    sent = subprocess.run(
        [*command, "-H", "Content-Type: application/x-ndjson"],
        input=lines,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert [json.loads(line)["offset"] for line in sent.stdout.splitlines()] == [0, 1, 2]
