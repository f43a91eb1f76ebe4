"""What a server says of its topics: schemas, settings and partitions over HTTP, ids over its Kafka port.

facts = TopicFactsReader("http://127.0.0.1:8082", "127.0.0.1:9092")
facts.topic("orders").schemas
facts.switched_on()             # topics whose kwire.lake.mode is not none
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

from kwire.client.backoff import Backoff

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

REQUEST_TIMEOUT_S = 30.0
# How long a server that has answered before is asked again if it does not. One that never has is probably not there.
PATIENCE_S = 60.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
# Topics whose settings are asked for at once.
TOPICS_PER_REQUEST = 1000

Answer = TypeVar("Answer")

LAKE_MODE = "kwire.lake.mode"
NONE, APPEND, UPSERT = "none", "append", "upsert"


class TopicMissing(ValueError):
    """There is no such topic (any more)."""


class ServerUnreachable(ConnectionError):
    """The server does not answer, or not as a kwire server does."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is now. `schemas` has one for each event type; topics outside the event store have none."""

    name: str
    partition_count: int
    configs: Mapping[str, str | None]
    schemas: tuple[Mapping[str, Any], ...]

    @property
    def is_event_topic(self) -> bool:
        return self.configs.get("kwire.events") == "true"

    @property
    def is_compacted(self) -> bool:
        return "compact" in (self.configs.get("cleanup.policy") or "").split(",")

    @property
    def lake_mode(self) -> str:
        """How it goes to the lake: as it says, else by the kind of topic it is."""
        said = self.configs.get(LAKE_MODE) or NONE
        if said != NONE:
            return said
        return UPSERT if self.is_compacted else APPEND


class LogBounds(NamedTuple):
    """The first record of a partition, and the place after its last."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """Which topic it is, and from where to where each partition goes."""

    topic_id: str
    bounds: Mapping[int, LogBounds]


class TopicFactsReader:
    """Asks anew each time: facts change under a job that runs."""

    def __init__(self, http_url: str, bootstrap: str) -> None:
        parts = urlsplit(http_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"--http takes http://HOST:PORT, not {http_url!r}")
        self._url = http_url.rstrip("/")
        self._bootstrap = bootstrap
        # The ports that have answered.
        self._known: set[str] = set()

    def topic(self, name: str) -> TopicFacts:
        return self._patiently(self._url, lambda: self._topic(name))

    def _topic(self, name: str) -> TopicFacts:
        told = self._get(f"/topics/{quote(name, safe='')}", name)
        try:
            return TopicFacts(told["name"], len(told["partitions"]), told["configs"], tuple(told.get("schemas", ())))
        except (AttributeError, LookupError, TypeError):
            raise ServerUnreachable(f"{self._url} does not answer as a kwire server does") from None

    def state(self, name: str) -> TopicState:
        """The id is another one when a topic has been deleted and made again."""
        return self._patiently(self._bootstrap, lambda: self._state(name))

    def _state(self, name: str) -> TopicState:
        from kafka import OffsetSpec, TopicPartition

        with self._admin() as admin:
            for told in admin.describe_topics([name]):
                if told["name"] == name and not told["error_code"]:
                    break
            else:
                raise TopicMissing(f"there is no topic {name}")
            places = [TopicPartition(name, partition["partition_index"]) for partition in told["partitions"]]
            first = admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
            end = admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
            bounds = {place.partition: LogBounds(first[place].offset, end[place].offset) for place in places}
            return TopicState(str(told["topic_id"]), bounds)

    def switched_on(self) -> list[str]:
        """The topics that their setting kwire.lake.mode sends to the lake, in order."""
        names = [name for name in self._get("/topics", None) if isinstance(name, str)]
        found = []
        with self._admin() as admin:
            for start in range(0, len(names), TOPICS_PER_REQUEST):
                modes = _lake_modes(admin, names[start : start + TOPICS_PER_REQUEST])
                found += [name for name, mode in modes if mode != NONE]
        return sorted(found)

    def _get(self, path: str, topic: str | None) -> Any:
        request = urllib.request.Request(self._url + path, headers={"Accept": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.loads(answer.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404 and topic is not None:
                    raise TopicMissing(f"there is no topic {topic}") from None
                raise ServerUnreachable(f"{self._url}{path} answered {error.code} {error.reason}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise ServerUnreachable(f"no answer from {self._url}{path}: {error}") from error

    def _patiently(self, port: str, ask: Callable[[], Answer]) -> Answer:
        """Ask again for a while if the server is away: a restart takes it some seconds."""
        backoff, deadline = Backoff(), time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = ask()
                self._known.add(port)
                return answer
            except ServerUnreachable:
                delay_s = backoff.next_delay_s()
                if port not in self._known or time.monotonic() + delay_s > deadline:
                    raise
                time.sleep(delay_s)

    @contextmanager
    def _admin(self) -> "Iterator[KafkaAdminClient]":
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        timeout_ms = int(REQUEST_TIMEOUT_S * 1000)
        try:
            admin = KafkaAdminClient(bootstrap_servers=self._bootstrap, request_timeout_ms=timeout_ms)
            try:
                yield admin
            finally:
                admin.close()
        except (KafkaError, OSError) as error:
            raise ServerUnreachable(f"no answer from {self._bootstrap}: {error}") from error


def _lake_modes(admin: "KafkaAdminClient", names: Sequence[str]) -> Iterable[tuple[str, str]]:
    from kafka.admin import ConfigResource, ConfigResourceType

    asked = [ConfigResource(ConfigResourceType.TOPIC, name, {LAKE_MODE: None}) for name in names]
    # kafka-python leaves out what has its default.
    for name, settings in admin.describe_configs(asked).get("topic", {}).items():
        yield name, settings.get(LAKE_MODE, {}).get("value") or NONE
