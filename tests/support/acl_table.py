"""The table of rights: every served API with each right that it checks, and the errors without this right.

The requests are those of `access_cases.py` and `group_access_cases.py`, in the newest version, and those of the APIs
that are in neither of the two. `tests/end_to_end/test_acl_table.py` sends them to a server.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

from kwire.access.acl import CLUSTER_NAME, Operation, ResourceType
from kwire.errors import ErrorCode
from kwire.handlers import HANDLERS
from kwire.handlers.shared import needs
from kwire.handlers.shared.needs import Need
from kwire.wire.codec import encode_message
from kwire.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kwire.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest, ScramCredentialUpsertion
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kwire.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from kwire.wire.messages.describe_transactions import DescribeTransactionsRequest
from kwire.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kwire.wire.messages.init_producer_id import InitProducerIdRequest
from kwire.wire.messages.list_groups import ListGroupsRequest
from kwire.wire.messages.list_transactions import ListTransactionsRequest
from kwire.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kwire.wire.messages.sasl_handshake import SaslHandshakeRequest
from kwire.wire.schema import message_of
from tests.support import acls
from tests.support.access_cases import (
    CASES,
    CLUSTER_REFUSED,
    GROUP_REFUSED,
    TOPIC_REFUSED,
    TRANSACTIONAL_ID_REFUSED,
    AccessCase,
    Subject,
)
from tests.support.group_access import (
    DESCRIBE,
    DESCRIBE_CLUSTER,
    GROUP,
    REFUSALS,
    TOPIC,
    TRANSACTION,
    WRITE,
    Right,
    World,
    codes,
    group_right,
    topic_right,
    transaction_right,
)
from tests.support.group_access_cases import TABLE, Row

T = TypeVar("T")

PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 19, 20
# In older versions of these two APIs topics have names. Most clients use them, so these rows have both versions.
IN_BOTH_VERSIONS = {PRODUCE, FETCH}
# The last versions of requests that later versions of the API do not have.
LAST_VERSIONS = {"metadata of the cluster": 10}


class Entry(NamedTuple):
    """A request, the right that it needs, and its errors. The request is about the subject of a connection."""

    name: str
    version: int
    request: Callable[[World, Subject], Any]
    # The right that the request needs on a subject of this name, and the rights that the client has in every state.
    right: Callable[[str], Right]
    given: Callable[[str], tuple[Right, ...]]
    refusal: ErrorCode
    code: Callable[[Any], int]
    accepted: ErrorCode = ErrorCode.NONE
    # A right that does not help. None is the same operation on a resource with another name.
    other: Right | None = None
    # The subject does not exist when the request is sent.
    is_new: bool = False
    # Whether the request can be sent again after it was accepted.
    is_repeatable: bool = True
    # Whether the request has its effect in every state, because the right decides only on the content of the response.
    is_always_done: bool = False

    @property
    def key(self) -> int:
        return message_of(type(self.request(World({}, 0, 0), Subject("t")))).key

    @property
    def need(self) -> Need:
        right = self.right("t")
        return Need(right.operation, right.resource_type)

    def other_right(self, name: str) -> Right:
        if self.other is not None:
            return self.other
        right = self.right(name)
        if right.resource_type is ResourceType.CLUSTER:
            # There is one cluster. A group of the same name is another resource.
            return right._replace(resource_type=ResourceType.GROUP)
        return right._replace(name=f"{right.name}-other")


def _always(value: T) -> Callable[[str], T]:
    """Return a function that returns the value for every subject."""
    return lambda name: value


# --- the cases of topics, records, configs and the cluster


def _right_of(need: Need) -> Callable[[str], Right]:
    def right(name: str) -> Right:
        return Right(*need, CLUSTER_NAME if need.resource_type is ResourceType.CLUSTER else name)

    return right


def _of_case(case: AccessCase, version: int) -> Entry:
    given = tuple(_right_of(need) for need in case.given)
    return Entry(
        f"{case.name} in version {version}",
        version,
        lambda world, subject: case.request(subject),
        _right_of(case.need),
        lambda name: tuple(right(name) for right in given),
        case.refusal,
        case.code,
        case.accepted,
        is_new=case.is_new,
        is_repeatable=not case.is_new and case.key != DELETE_TOPICS,
        is_always_done=case.key == CREATE_TOPICS and case.need == needs.DESCRIBE_TOPIC_CONFIGS,
    )


def _of_cases() -> Iterator[Entry]:
    seen = set()
    subject = Subject("orders", bytes(range(16)))
    for case in CASES:
        newest = LAST_VERSIONS.get(case.name, HANDLERS[case.key].api.last_version)
        for version in sorted({newest, case.version} if case.key in IN_BOTH_VERSIONS else {newest}):
            # Cases that differ only in their version are the same in the newest one.
            what = (case.key, version, encode_message(case.request(subject), version), case.need, case.is_new)
            if what not in seen:
                seen.add(what)
                yield _of_case(case, version)


# --- the rows of groups, offsets and transactional ids


def _only_code(response: Any) -> int:
    (code,) = codes(response)
    return code


def _of_row(row: Row) -> Iterator[Entry]:
    """Yield an entry for each right of a row; the client has the others."""
    version = row.versions[-1]
    (accepted,) = row.reached
    for right in row.rights:
        others = tuple(one for one in row.rights if one is not right)
        yield Entry(
            f"{row.name}, {right.operation.name} on the {right.resource_type.name}",
            version,
            lambda world, subject: row.request(world, version),
            _always(right),
            _always(others),
            REFUSALS[right.resource_type],
            _only_code,
            accepted,
        )


# --- the other APIs


def _newest(request: type[Any]) -> int:
    return HANDLERS[message_of(request).key].api.last_version


def _entry(
    name: str,
    request: Any,
    right: Right,
    code: Callable[[Any], int],
    *,
    refusal: ErrorCode = CLUSTER_REFUSED,
    accepted: ErrorCode = ErrorCode.NONE,
    given: tuple[Right, ...] = (),
    other: Right | None = None,
) -> Entry:
    """Return an entry whose request and rights are the same for all subjects."""
    return Entry(
        name,
        _newest(type(request)),
        lambda world, subject: request,
        _always(right),
        _always(given),
        refusal,
        code,
        accepted,
        other,
    )


def _of_request(response: Any) -> int:
    code: int = response.error_code
    return code


def _of_result(response: Any) -> int:
    (result,) = getattr(response, "results", None) or response.filter_results
    return _of_request(result)


def _shown(refusal: ErrorCode, names: Callable[[Any], list[str]], name: str) -> Callable[[Any], int]:
    """Return `refusal` for a response that hides a name: Kafka has no error for that."""
    return lambda response: _of_request(response) or (ErrorCode.NONE if name in names(response) else refusal)


def _topics_of_transaction(response: Any) -> int:
    (state,) = response.transaction_states
    assert state.error_code == ErrorCode.NONE
    return ErrorCode.NONE if TOPIC in [one.topic for one in state.topics] else TOPIC_REFUSED


def _name_of_topic(response: Any) -> int:
    """Whether a refused deletion by id names the topic."""
    (result,) = response.responses
    assert result.error_code == TOPIC_REFUSED
    return TOPIC_REFUSED if result.name is None else ErrorCode.NONE


def _cluster_right(operation: Operation) -> Right:
    return Right(operation, ResourceType.CLUSTER, CLUSTER_NAME)


# Rights of this principal are created, described and deleted by the table.
NOBODY = "User:nobody"
ALTER = _cluster_right(Operation.ALTER)
# Requests of a login need no right, and no right of any kind is asked for.
ANY_RIGHT = _cluster_right(Operation.ALL)
NEW_CREDENTIAL = ScramCredentialUpsertion(
    name="nobody", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
)

_MORE = (
    *(
        _entry(
            f"list groups, DESCRIBE on the {right.resource_type.name}",
            ListGroupsRequest(),
            right,
            _shown(GROUP_REFUSED, lambda response: [one.group_id for one in response.groups], GROUP),
            refusal=GROUP_REFUSED,
        )
        for right in (DESCRIBE_CLUSTER, group_right(DESCRIBE))
    ),
    _entry(
        "list transactions",
        ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
        transaction_right(DESCRIBE),
        _shown(
            TRANSACTIONAL_ID_REFUSED,
            lambda response: [one.transactional_id for one in response.transaction_states],
            TRANSACTION,
        ),
        refusal=TRANSACTIONAL_ID_REFUSED,
    ),
    _entry(
        "topics of a described transaction",
        DescribeTransactionsRequest(transactional_ids=[TRANSACTION]),
        topic_right(DESCRIBE),
        _topics_of_transaction,
        refusal=TOPIC_REFUSED,
        given=(transaction_right(DESCRIBE),),
    ),
    _entry(
        "InitProducerId without an id, WRITE on any topic",
        InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        topic_right(WRITE),
        _of_request,
        # A right on any topic helps, so the right that does not help is one on a transactional id.
        other=transaction_right(WRITE),
    ),
    Entry(
        "name of a topic that cannot be deleted",
        _newest(DeleteTopicsRequest),
        lambda world, subject: DeleteTopicsRequest(
            topics=[DeleteTopicState(topic_id=subject.topic_id)], timeout_ms=1000
        ),
        lambda name: topic_right(DESCRIBE, name),
        _always(()),
        TOPIC_REFUSED,
        _name_of_topic,
    ),
    _entry("describe ACLs", acls.description(principal=NOBODY), DESCRIBE_CLUSTER, _of_request),
    _entry("create ACLs", acls.creation(acls.row(principal=NOBODY)), ALTER, _of_result),
    _entry("delete ACLs", acls.deletion(acls.one_filter(principal=NOBODY)), ALTER, _of_result),
    _entry(
        "describe client quotas",
        DescribeClientQuotasRequest(components=[], strict=False),
        _cluster_right(Operation.DESCRIBE_CONFIGS),
        _of_request,
    ),
    _entry(
        "alter client quotas",
        AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type="user", entity_name="nobody")],
                    ops=[OpData(key="producer_byte_rate", value=1.0, remove=False)],
                )
            ],
            validate_only=True,
        ),
        _cluster_right(Operation.ALTER_CONFIGS),
        lambda response: _of_request(response.entries[0]),
    ),
    _entry("describe credentials", DescribeUserScramCredentialsRequest(users=None), DESCRIBE_CLUSTER, _of_request),
    _entry(
        "alter credentials",
        AlterUserScramCredentialsRequest(deletions=[], upsertions=[NEW_CREDENTIAL]),
        ALTER,
        _of_result,
    ),
    _entry(
        "API versions",
        ApiVersionsRequest(client_software_name="raw", client_software_version="1"),
        ANY_RIGHT,
        _of_request,
        refusal=ErrorCode.NONE,
    ),
    # The connections of the table have logged in, or belong to a listener without SASL.
    *(
        _entry(
            name,
            request,
            ANY_RIGHT,
            _of_request,
            refusal=ErrorCode.ILLEGAL_SASL_STATE,
            accepted=ErrorCode.ILLEGAL_SASL_STATE,
        )
        for name, request in (
            ("SASL handshake", SaslHandshakeRequest(mechanism="PLAIN")),
            ("SASL authentication", SaslAuthenticateRequest(auth_bytes=b"")),
        )
    ),
)

ENTRIES = (*_of_cases(), *(entry for row in TABLE for entry in _of_row(row)), *_MORE)
