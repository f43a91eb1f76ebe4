"""The event API of tenants on a real server: limits after a kill, and sessions."""

import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from tests.support.access_commands import succeeded
from tests.support.cli import run_here
from tests.support.db_events import EVENTS, SUBSCRIBE
from tests.support.server import HOST, KwireProcess, wait_until

WAIT_S = 20.0
LIMIT = 5


def created(server: KwireProcess, *arguments: object) -> Any:
    return json.loads(succeeded(run_here("key", "create", *arguments, "--data-dir", server.data_dir, "-o", "json")))


def publish(server: KwireProcess, token: str, data: object) -> tuple[int, dict[str, str]]:
    port = int(server.http_url.rpartition(":")[2])
    connection = http.client.HTTPConnection(HOST, port, timeout=WAIT_S)
    try:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", EVENTS, json.dumps({"topic": "a:b", "data": data}), headers)
        answer = connection.getresponse()
        answer.read()
        return answer.status, dict(answer.getheaders())
    finally:
        connection.close()


def subscribed(server: KwireProcess, token: str) -> ClientConnection:
    url = server.http_url.replace("http://", "ws://")
    return connect(
        f"{url}{SUBSCRIBE}?topic=a:b", additional_headers={"Authorization": f"Bearer {token}"}, open_timeout=WAIT_S
    )


def refused(server: KwireProcess, token: str) -> int:
    with pytest.raises(InvalidStatus) as error, subscribed(server, token):
        pass
    return error.value.response.status_code


def test_limits_hold_over_a_kill_and_slots_of_dead_sessions_are_free(tmp_path: Path) -> None:
    server = KwireProcess(tmp_path, settings={"kwire.http.authentication": "key"})
    key = created(server, "--scope", "acme", "--max-events", LIMIT, "--max-subscriptions", 1)
    server.start()
    server.ready()
    try:
        with subscribed(server, key["token"]) as socket:
            assert refused(server, key["token"]) == 503
            for number in range(3):
                status, headers = publish(server, key["token"], number)
                assert (status, headers["X-Current-Events"]) == (200, str(number + 1))
                assert json.loads(socket.recv(WAIT_S)) == {"topic": "a:b", "data": number}
            server.kill()
            with pytest.raises(ConnectionClosed):
                socket.recv(WAIT_S)
        server.start()
        server.ready()
        # The count is too high by one block at most, and a block of this key is one event.
        with subscribed(server, key["token"]) as socket:
            accepted = 0
            while publish(server, key["token"], accepted)[0] == 200:
                assert json.loads(socket.recv(WAIT_S))["data"] == accepted
                accepted += 1
            assert accepted in (1, 2)
            assert refused(server, key["token"]) == 503
        status, headers = publish(server, key["token"], "too many")
        assert (status, headers["X-Current-Events"], headers["X-Events-Limit"]) == (400, "5", "5")
        server.kill()
        server.start()
        server.ready()
        assert publish(server, key["token"], "too many")[0] == 400
        wait_until(lambda: _is_accepted(server, key["token"]), "a free slot")
        assert server.stop() == 0
    finally:
        server.kill()


def _is_accepted(server: KwireProcess, token: str) -> bool:
    try:
        with subscribed(server, token):
            return True
    except InvalidStatus:
        return False
