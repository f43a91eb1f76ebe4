"""What the publishers of an event store were told, beside the events that are found in it."""

import json
import urllib.request
from collections.abc import Sequence
from typing import Any

from tests.support.event_senders import EVENT_TYPE, Publisher
from tests.support.http_json import ask
from tests.support.server import KwireProcess

TIMEOUT_S = 60.0
SCHEMA = {"eventType": EVENT_TYPE, "type": "object", "minProperties": 1}
PAGE = 1000

# An event: its id, and its payload.
Found = list[tuple[str, Any]]


def make_topics(process: KwireProcess, names: Sequence[str]) -> None:
    for name in names:
        answer = ask(f"{process.http_url}/topics", "POST", {"name": name, "schemas": [SCHEMA]})
        assert answer.status == 201, answer.body


def published(found: Found) -> Found:
    return sorted((one, payload) for one, payload in found if "batch" in payload)


def answered_count(publishers: Sequence[Publisher]) -> int:
    return sum(len(one.answered) for one in publishers)


class PositionReader:
    """Reads all events by their global positions, on from where it was, as a subscriber that resumes."""

    def __init__(self) -> None:
        self._position = 0

    def read_on(self, http_url: str) -> Found:
        found: Found = []
        with urllib.request.urlopen(f"{http_url}/subscribe/all?from={self._position}", timeout=TIMEOUT_S) as lines:
            for line in lines:
                said = json.loads(line)
                if said.get("control") == "caught_up":
                    return found
                if "control" not in said:
                    assert said["position"] == self._position
                    self._position += 1
                    found.append((said["id"], said["payload"]))
        raise AssertionError("the stream ended before it had caught up")


class NumberReader:
    """Reads the events of topics by their numbers, on from where it was."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._numbers = dict.fromkeys(topics, 0)

    def read_on(self, http_url: str) -> Found:
        found: Found = []
        for topic in self._numbers:
            while events := self._page(http_url, topic):
                for one in events:
                    self._numbers[topic] += 1
                    assert one["id"] == f"{topic}-{self._numbers[topic]}"
                    found.append((one["id"], one["payload"]))
        return found

    def _page(self, http_url: str, topic: str) -> list[dict[str, Any]]:
        number = self._numbers[topic]
        since = f"&sinceEventId={topic}-{number}" if number else ""
        answer = ask(f"{http_url}/topics/{topic}/events?limit={PAGE}{since}")
        assert answer.status == 200, answer.body
        events: list[dict[str, Any]] = answer.body["events"]
        return events


class Ledger:
    """Whether every answered batch is there, where the answer said, and every batch as a whole and once."""

    def __init__(self, publishers: Sequence[Publisher]) -> None:
        self._publishers = publishers
        # The ids of the events of each batch, in the order of the batch.
        self.found: dict[str, dict[int, str]] = {}

    def add(self, found: Found) -> None:
        for event_id, payload in found:
            ids = self.found.setdefault(payload["batch"], {})
            assert payload["at"] not in ids, f"{event_id} is {ids[payload['at']]} again"
            ids[payload["at"]] = event_id

    def check(self) -> None:
        asked = {name: count for one in self._publishers for name, count in one.asked.items()}
        torn = [name for name, ids in self.found.items() if len(ids) != asked[name]]
        assert not torn, f"batches that are there in part: {torn}"
        for one in self._publishers:
            for name, ids in one.answered.items():
                assert name in self.found, f"{name} was answered and is gone"
                assert [self.found[name][at] for at in range(asked[name])] == ids
