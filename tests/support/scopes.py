"""Tenants in tests: clients of a quiet node whose access has a scope, and requests that are generated for every API.

The declarations say which fields of a request are names. So a request about any name can be generated for each API and
version, and a response can be searched for what it reveals.
"""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from kwire.access.access import Access, Unrestricted
from kwire.access.principal import KEY, Principal
from kwire.access.scope import ID_LENGTH, Scope
from kwire.access.scoped_access import ScopedAccess
from kwire.coordinator.group.classic.embedded_protocol import CONSUMERS
from kwire.handlers.shared.context import BlockingContinuation
from kwire.handlers.shared.views import Views
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.schema import REQUIRED, Api, ArrayKind, Field, Struct, message_of
from kwire.wire.types import BYTES, ERROR_TEXT, RECORDS, STRING, TOPIC_NAME, UUID
from storage.batch.record_batch import Record, build_batch
from tests.support.access import ADMIN
from tests.support.node import QuietNode

A, B = Scope("tenant-a", "a" * ID_LENGTH), Scope("tenant-b", "b" * ID_LENGTH)

VALUE = b"a record of nobody else"


class Client:
    """A client of a quiet node: a tenant, or an administrator if it has no scope."""

    def __init__(self, node: QuietNode, scope: Scope | None) -> None:
        self.node = node
        self.scope = scope
        host = node.peer.client_host
        access: Access = Unrestricted(ADMIN, host)
        if scope is not None:
            access = ScopedAccess(Principal(KEY, scope.name), host, scope)
        self.views = Views(node.services, access)

    def full_name(self, plain: str) -> str:
        return plain if self.scope is None else self.scope.full_name(plain)

    async def ask_bytes(self, request: Any, version: int) -> bytes | None:
        """The body of the response; None if there is none."""
        answer = self.node.start(request, version, self.views)
        if isinstance(answer, BlockingContinuation):
            answer = await answer.rest
        if inspect.isawaitable(answer):
            answer = await answer
        return None if answer is None else encode_message(answer, version, self.views.names)

    async def ask(self, request: Any, version: int | None = None) -> Any:
        message = message_of(type(request))
        version = message.versions.last if version is None else version
        body = await self.ask_bytes(request, version)
        return None if body is None else self.decoded(self.node.services.apis[message.key], version, body)

    def decoded(self, api: Api, version: int, body: bytes) -> Any:
        return decode_message(api.response, version, body)


class Target(NamedTuple):
    """What a generated request names: every topic, group and transactional id has the same name."""

    name: str
    topic_id: bytes
    session_id: int
    producer_id: int
    producer_epoch: int


# Values with which a request of a client that has every right is accepted.
_VALUES: Mapping[str, Any] = {
    "acks": -1,
    "allow_auto_topic_creation": False,
    "committed": True,
    "committed_offset": 1,
    "config_operation": 0,
    "count": 2,
    "duration_filter": -1,
    "endpoint_type": 1,
    "fetch_offset": 0,
    "generation_id_or_member_epoch": -1,
    "group_instance_id": None,
    "include_authorized_operations": True,
    "include_topic_authorized_operations": True,
    "instance_id": None,
    "key_type": 0,
    "max_bytes": 2**20,
    "max_wait_ms": 0,
    "mechanism": 1,
    "min_bytes": 0,
    "num_partitions": 1,
    "offset": 1,
    "partition_max_bytes": 2**20,
    "protocol_type": CONSUMERS,
    "rack_id": None,
    "rebalance_timeout_ms": 10_000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "response_partition_limit": 100,
    "server_assignor": None,
    "session_timeout_ms": 10_000,
    "subscribed_topic_regex": None,
    "timeout_ms": 1_000,
    "timestamp": -2,
    "transaction_timeout_ms": 60_000,
    "transactional_id_pattern": ".*",
}
# Arrays that must be empty, or null, for the request to be about a name.
_EMPTY = {"assignments", "forgotten_topics_data", "producer_id_filters", "state_filters", "states_filter", "replicas"}
_NULL = {"configuration_keys"}


def generated(cls: type[Any], version: int, target: Target, **values: Any) -> Any:
    """A request in which every name is that of the target; `values` are the values of other fields."""
    return _struct(message_of(cls).struct, version, target, {**_VALUES, **values})


def _struct(kind: Struct, version: int, target: Target, values: Mapping[str, Any]) -> Any:
    fields = [*kind.at(version), *kind.tagged_at(version)]
    given = {f.name: _value(f, version, target, values) for f in fields if f.tag is None or f.default is REQUIRED}
    rest = {f.name: _absent(f, target, values) for f in kind.fields if f.name not in given and f.default is REQUIRED}
    return kind.make(**given, **rest)


def _absent(f: Field, target: Target, values: Mapping[str, Any]) -> Any:
    return [] if isinstance(f.kind, ArrayKind) else getattr(f.kind, "zero", None)


def _value(f: Field, version: int, target: Target, values: Mapping[str, Any]) -> Any:
    if f.name in values:
        value = values[f.name]
        return value if value is not None or version in f.nullable else ""
    if f.name in ("producer_id", "v3_and_below_producer_id"):
        return target.producer_id
    if f.name in ("producer_epoch", "v3_and_below_producer_epoch"):
        return target.producer_epoch
    if f.name == "session_id":
        return target.session_id
    if f.name == "session_epoch":
        return 1 if target.session_id else -1
    if f.name in _EMPTY:
        return []
    if f.name in _NULL:
        return None
    element = f.kind.element if isinstance(f.kind, ArrayKind) else f.kind
    if isinstance(element, Struct):
        made: Any = _struct(element, version, target, values)
    elif f.entity is TOPIC_NAME and version in f.nullable and any(target.topic_id):
        return None  # the request names either a name or an id
    elif f.entity is not None and f.entity is not ERROR_TEXT:
        made = target.name
    elif element is UUID:
        made = target.topic_id if f.name == "topic_id" else bytes(16)
    elif element is RECORDS:
        made = build_batch([Record(None, VALUE)])
    elif element is STRING:
        made = ""
    elif element is BYTES:
        made = b""
    else:
        made = element.zero
    return [made] if isinstance(f.kind, ArrayKind) else made


def masked(response: Any, names: Iterable[str]) -> Any:
    """A response without what differs between two equal requests: these names, new ids, epochs, times."""
    if hasattr(type(response), "__struct__"):
        return {f.name: _masked_field(f, getattr(response, f.name), names) for f in type(response).__struct__.fields}
    if isinstance(response, list):
        return [masked(one, names) for one in response]
    if isinstance(response, str):
        for name in names:
            response = response.replace(name, "NAME")
        return response
    if isinstance(response, memoryview):
        return bytes(response)
    return response


# Numbers and ids that the server chooses anew, and the value of each that is not new.
_NEW: Mapping[str, Any] = {
    "leader": "",
    "member_epoch": 0,
    "member_id": "",
    "producer_epoch": -1,
    "producer_id": -1,
    "session_id": 0,
    "topic_id": bytes(16),
    "transaction_start_time_ms": -1,
}


def _masked_field(f: Field, value: Any, names: Iterable[str]) -> Any:
    if f.name in _NEW and value is not None and value != _NEW[f.name]:
        return "NEW"
    return masked(value, names)
