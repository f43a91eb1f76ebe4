"""Requests descriptions of topics: schemas, settings and partitions over HTTP, ids and offsets over the Kafka port.

facts = TopicFactsReader(Server("127.0.0.1:9092", "http://127.0.0.1:8082"))
facts.topic("orders").schemas
facts.lake_topics()             # topics whose kwire.lake.mode is not none
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from kwire.client.backoff import Backoff
from kwire.pipeline.server import REQUEST_TIMEOUT_S, Server

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

# The maximum time for which a request to an unreachable server is retried. It is retried only if the server has
# answered an earlier request.
RETRY_S_MAX = 60.0
# The maximum number of topics in one DescribeConfigs request.
TOPICS_PER_REQUEST = 1000

Answer = TypeVar("Answer")

# Operations of ACLs on a topic, and error codes of Kafka.
READ, WRITE, DESCRIBE_CONFIGS = "READ", "WRITE", "DESCRIBE_CONFIGS"
TOPIC_MISSING, TOPIC_AUTHORIZATION_FAILED = 3, 29

LAKE_MODE = "kwire.lake.mode"
NONE, APPEND, UPSERT = "none", "append", "upsert"


class NotAllowed(ValueError):
    """The server does not allow an operation that the job needs, or does not accept the login."""


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

    def __init__(self, server: Server) -> None:
        self._server = server
        # The addresses from which a response has arrived.
        self._answered: set[str] = set()

    def topic(self, name: str) -> TopicFacts:
        return self._with_retries(self._server.http, lambda: self._topic(name))

    def _topic(self, name: str) -> TopicFacts:
        answer = self._get(f"/topics/{quote(name, safe='')}", name)
        try:
            if not answer["configs"]:
                raise NotAllowed(_not_allowed(name, self._server, (DESCRIBE_CONFIGS,)))
            return TopicFacts(
                answer["name"], len(answer["partitions"]), answer["configs"], tuple(answer.get("schemas", ()))
            )
        except (AttributeError, LookupError, TypeError):
            url = self._server.http
            raise ServerUnreachable(f"{url} is not a kwire server: its answer has another format") from None

    def state(self, name: str, *operations: str) -> TopicState:
        """Return the topic's id and offsets. A topic that was deleted and created again has a new id.

        Raises NotAllowed if one of the operations, such as READ, is not allowed on the topic.
        """
        return self._with_retries(self._server.bootstrap, lambda: self._state(name, operations))

    def _state(self, name: str, operations: Sequence[str]) -> TopicState:
        from kafka import OffsetSpec, TopicPartition

        with self._admin() as admin:
            found = next((one for one in admin.describe_topics([name]) if one["name"] == name), None)
            described = check_described(found, name, self._server, *operations)
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
        url = self._server.http.rstrip("/") + path
        try:
            status, answer = self._server.get(path)
        except (OSError, HTTPException) as error:
            reason = (error.strerror or error) if isinstance(error, OSError) else error
            raise ServerUnreachable(f"no answer from {url}: {reason}") from error
        if status == HTTPStatus.OK and answer is not None:
            return answer
        if status == HTTPStatus.NOT_FOUND and topic is not None:
            raise TopicMissing(f"topic {topic} does not exist")
        refusal = _error_of(answer)
        if status == HTTPStatus.FORBIDDEN and topic is not None and refusal.get("resource_type") == "TOPIC":
            raise NotAllowed(_not_allowed(topic, self._server, (str(refusal["operation"]),)))
        message = refusal.get("message") or HTTPStatus(status).phrase
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise NotAllowed(f"{url}: {message}")
        raise ServerUnreachable(f"{url} answered {status}: {message}")

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

        # kafka-python does not report a refused login, for example after a change of the password, but repeats it until
        # the server refuses all logins from this address.
        try:
            self._server.check(uses_http=False)
        except OSError as error:
            raise ServerUnreachable(str(error)) from error
        timeout_ms = int(REQUEST_TIMEOUT_S * 1000)
        try:
            admin = KafkaAdminClient(**self._server.kafka_python_options(), request_timeout_ms=timeout_ms)
            try:
                yield admin
            finally:
                admin.close()
        except (KafkaError, OSError) as error:
            raise ServerUnreachable(f"no answer from {self._server.bootstrap}: {error}") from error


def check_described(
    described: Mapping[str, Any] | None, name: str, server: Server, *operations: str
) -> Mapping[str, Any]:
    """Return a topic as kafka-python describes it. Raises TopicMissing, or NotAllowed if an operation is not allowed.

    Spark would fail in the middle of a batch, and settings that the user may not read would look like defaults.
    """
    code = TOPIC_MISSING if described is None else described["error_code"]
    if code == TOPIC_AUTHORIZATION_FAILED:
        raise NotAllowed(_not_allowed(name, server, operations or ("DESCRIBE",)))
    if described is None or code:
        raise TopicMissing(f"topic {name} does not exist")
    # Servers that do not tell the operations return none.
    allowed = described.get("authorized_operations")
    lacking = [one for one in operations if one not in allowed] if allowed else []
    if lacking:
        raise NotAllowed(_not_allowed(name, server, lacking))
    return described


def _not_allowed(topic: str, server: Server, operations: Sequence[str]) -> str:
    words = ",".join(operations).lower().replace("_", "-")
    login = server.login or server.http_login
    principal = f" --principal User:{login.user}" if login else ""
    return (
        f"topic {topic}: {server.user} is not allowed to {' and '.join(operations)} it; add the right with "
        f"kwire acl add{principal} --allow {words} --topic {topic}"
    )


def _error_of(answer: Any) -> Mapping[str, Any]:
    """Return the error of an answer of the HTTP port; it is empty if another program has answered."""
    error = answer.get("error") if isinstance(answer, dict) else None
    return error if isinstance(error, dict) else {}


def _lake_modes(admin: "KafkaAdminClient", names: Sequence[str]) -> Iterable[tuple[str, str]]:
    from kafka.admin import ConfigResource, ConfigResourceType

    asked = [ConfigResource(ConfigResourceType.TOPIC, name, {LAKE_MODE: None}) for name in names]
    # kafka-python omits settings with default values, so a missing setting is "none".
    for name, settings in admin.describe_configs(asked).get("topic", {}).items():
        yield name, settings.get(LAKE_MODE, {}).get("value") or NONE
