"""Requests descriptions of topics: schemas, settings and partitions over HTTP, ids and offsets over the Kafka port.

facts = TopicFactsReader("http://127.0.0.1:8082", "127.0.0.1:9092")
facts.topic("orders").schemas
facts.lake_topics()             # topics whose kwire.lake.mode is not none
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
# The maximum time for which a request to an unreachable server is retried. It is retried only if the server has
# answered an earlier request.
RETRY_S_MAX = 60.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
# The maximum number of topics in one DescribeConfigs request.
TOPICS_PER_REQUEST = 1000

Answer = TypeVar("Answer")

LAKE_MODE = "kwire.lake.mode"
NONE, APPEND, UPSERT = "none", "append", "upsert"


class TopicMissing(ValueError):
    """The topic does not exist, or no longer exists."""


class ServerUnreachable(ConnectionError):
    """The server does not answer, or is not a kwire server."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """The current description of a topic.

    `schemas` has one entry per event type. It is empty if the topic does not belong to the event store.
    """

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
        """The mode in which the lake job writes the topic: the setting kwire.lake.mode, unless it is "none".

        If the setting is "none", the mode is "upsert" for a compacted topic, otherwise "append".
        """
        configured = self.configs.get(LAKE_MODE) or NONE
        if configured != NONE:
            return configured
        return UPSERT if self.is_compacted else APPEND


class LogBounds(NamedTuple):
    """The first offset of a partition, and the offset after its last record."""

    first: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """The id of a topic, and the offset range of each partition."""

    topic_id: str
    bounds: Mapping[int, LogBounds]


class TopicFactsReader:
    """Requests descriptions of topics. Responses are not cached, because topics may change while a job runs."""

    def __init__(self, http_url: str, bootstrap: str) -> None:
        parts = urlsplit(http_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"--http: expected http://HOST:PORT, got {http_url!r}")
        self._url = http_url.rstrip("/")
        self._bootstrap = bootstrap
        # The addresses from which a response has arrived.
        self._answered: set[str] = set()

    def topic(self, name: str) -> TopicFacts:
        return self._with_retries(self._url, lambda: self._topic(name))

    def _topic(self, name: str) -> TopicFacts:
        answer = self._get(f"/topics/{quote(name, safe='')}", name)
        try:
            return TopicFacts(
                answer["name"], len(answer["partitions"]), answer["configs"], tuple(answer.get("schemas", ()))
            )
        except (AttributeError, LookupError, TypeError):
            raise ServerUnreachable(f"{self._url} is not a kwire server: its answer has another format") from None

    def state(self, name: str) -> TopicState:
        """Return the topic's id and offsets. A topic that was deleted and created again has a new id."""
        return self._with_retries(self._bootstrap, lambda: self._state(name))

    def _state(self, name: str) -> TopicState:
        from kafka import OffsetSpec, TopicPartition

        with self._admin() as admin:
            for described in admin.describe_topics([name]):
                if described["name"] == name and not described["error_code"]:
                    break
            else:
                raise TopicMissing(f"topic {name} does not exist")
            partitions = [TopicPartition(name, one["partition_index"]) for one in described["partitions"]]
            first = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
            end = admin.list_partition_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
            bounds = {one.partition: LogBounds(first[one].offset, end[one].offset) for one in partitions}
            return TopicState(str(described["topic_id"]), bounds)

    def lake_topics(self) -> list[str]:
        """Return the names of the topics whose setting kwire.lake.mode is not "none", sorted."""
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
                    raise TopicMissing(f"topic {topic} does not exist") from None
                hint = "; jobs cannot log in, they need listeners without a login" if error.code == 401 else ""
                raise ServerUnreachable(f"{self._url}{path} answered {error.code} {error.reason}{hint}") from None
        except (OSError, HTTPException, ValueError) as error:
            raise ServerUnreachable(f"no answer from {self._url}{path}: {_reason(error)}") from error

    def _with_retries(self, address: str, ask: Callable[[], Answer]) -> Answer:
        """Send a request. Repeat it while the server is unreachable, because a restart takes some seconds."""
        backoff, deadline = Backoff(), time.monotonic() + RETRY_S_MAX
        while True:
            try:
                answer = ask()
                self._answered.add(address)
                return answer
            except ServerUnreachable:
                delay_s = backoff.next_delay_s()
                if address not in self._answered or time.monotonic() + delay_s > deadline:
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


def _reason(error: Exception) -> object:
    """Return the reason of a failed request, without what urllib adds to it."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return (cause.strerror or cause) if isinstance(cause, OSError) else cause


def _lake_modes(admin: "KafkaAdminClient", names: Sequence[str]) -> Iterable[tuple[str, str]]:
    from kafka.admin import ConfigResource, ConfigResourceType

    asked = [ConfigResource(ConfigResourceType.TOPIC, name, {LAKE_MODE: None}) for name in names]
    # kafka-python omits settings with default values, so a missing setting is "none".
    for name, settings in admin.describe_configs(asked).get("topic", {}).items():
        yield name, settings.get(LAKE_MODE, {}).get("value") or NONE
