"""A plain HTTP client for consumer groups: what a program without any library would do."""

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.support.server import HOST, KwireProcess

HTTP_TIMEOUT_S = 40.0


class RestError(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status = status
        self.code = code


class RestGroups:
    def __init__(self, process: KwireProcess) -> None:
        self._process = process

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """What the answer's JSON says; RestError if it is a refusal."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._process.http_url}{path}", data=data, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                raise RestError(error.code, json.load(error)["error"]["code"]) from None

    def create_topic(self, topic: str, partition_count: int) -> None:
        self.ask("POST", f"/topics/{topic}", {"num_partitions": partition_count})

    def create(self, group: str, topic: str, **fields: object) -> None:
        self.ask("POST", f"/consumer-groups/{group}", {"topic": topic, **fields})

    def join(self, group: str, **fields: object) -> str:
        member: str = self.ask("POST", f"/consumer-groups/{group}/join", fields)["member_id"]
        return member

    def assignment(self, group: str, member: str) -> dict[str, Any]:
        told: dict[str, Any] = self.ask("GET", f"/consumer-groups/{group}/members/{member}/assignment")
        return told

    def settled(self, group: str, members: Sequence[str], timeout_s: float = HTTP_TIMEOUT_S) -> list[list[int]]:
        """The partitions of each, once nobody waits for any more."""
        deadline = time.monotonic() + timeout_s
        while True:
            found = [self.assignment(group, one) for one in members]
            if all(one["state"] == "stable" for one in found):
                return [one["partitions"] for one in found]
            assert time.monotonic() < deadline, found

    def publish(self, topic: str, data: object, key: str | None = None) -> dict[str, Any]:
        body = {"event_type": "made", "data": data, "key": key}
        told: dict[str, Any] = self.ask("POST", f"/topics/{topic}/publish", body)
        return told

    def consume(self, topic: str, partition: int, from_offset: int) -> list[dict[str, Any]]:
        path = f"/topics/{topic}/partitions/{partition}/consume"
        events: list[dict[str, Any]] = self.ask("POST", path, {"from_offset": from_offset})["events"]
        return events

    def commit(self, group: str, partition: int, offset: int, **who: object) -> None:
        path = f"/consumer-groups/{group}/offsets/commit"
        self.ask("POST", path, {"partition_id": partition, "offset": offset, **who})

    def committed(self, group: str, partition: int) -> int | None:
        offset: int | None = self.ask("GET", f"/consumer-groups/{group}/offsets/{partition}")["offset"]
        return offset

    def stats(self, group: str) -> dict[str, Any]:
        told: dict[str, Any] = self.ask("GET", f"/consumer-groups/{group}/stats")
        return told

    @contextmanager
    def stream(self, group: str, member: str, query: str = "") -> Iterator[Iterator[dict[str, Any]]]:
        """The lines of a member's stream, until the server or the test ends it."""
        connection = http.client.HTTPConnection(HOST, self._process.http_port, timeout=HTTP_TIMEOUT_S)
        try:
            connection.request("GET", f"/consumer-groups/{group}/members/{member}/stream{query}")
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield (json.loads(line) for line in response if line.strip())
        finally:
            connection.close()
