"""Administrative requests in the audit log: which client makes a change, and changes of groups.

The services that make changes record them (topics, settings, ACLs, users). For these the handlers of ACTING_APIS run
with the client as the current actor. Groups have no such service: their changes are recorded here, from the response.
The handlers of all other APIs are not wrapped, and cost nothing more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from kwire.access.acl import CLUSTER_NAME
from kwire.access.audit.entries import CLUSTER, GROUP, TOPIC, Actor, Audit, acting, set_actor
from kwire.errors import ErrorCode
from kwire.handlers.shared.context import Context, Handler

# The APIs whose handlers change topics, settings, ACLs, quotas or users: Metadata (it creates topics), CreateTopics,
# DeleteTopics, CreateAcls, DeleteAcls, AlterConfigs, CreatePartitions, IncrementalAlterConfigs, AlterClientQuotas,
# AlterUserScramCredentials.
ACTING_APIS = frozenset({3, 19, 20, 30, 31, 33, 37, 44, 49, 51})
OFFSET_COMMIT, DELETE_RECORDS, DELETE_GROUPS, OFFSET_DELETE, UPDATE_FEATURES = 8, 21, 42, 47, 57
# An entry names at most this many topics.
TOPICS_NAMED_MAX = 100

Handle = Callable[[Context, Any], Any]


def audited(handlers: Mapping[int, Handler], audit: Audit) -> dict[int, Handler]:
    """Return the handlers, those of administrative APIs wrapped.

    OffsetCommit is wrapped only if the audit log records changes, because consumers use it all the time. The others are
    always wrapped: the server's log has changes even if the audit log has none.
    """
    unwrapped = frozenset() if audit.has_changes else {OFFSET_COMMIT}
    return {
        key: handler if key in unwrapped else handler._replace(handle=_wrapped(key, handler.handle, audit))
        for key, handler in handlers.items()
    }


def _wrapped(key: int, handle: Handle, audit: Audit) -> Handle:
    if key in ACTING_APIS:
        return _as_actor(handle)
    record = _RECORDERS.get(key)
    return handle if record is None else _recording(handle, record, audit)


def _as_actor(handle: Handle) -> Handle:
    def handle_as_actor(context: Context, request: Any) -> Any:
        actor = _actor_of(context)
        with acting(actor):
            answer = handle(context, request)
        return _continue_as(actor, answer) if isinstance(answer, Awaitable) else answer

    return handle_as_actor


async def _continue_as(actor: Actor, answer: Awaitable[Any]) -> Any:
    # The connection runs this in a task of its own, so the actor is that of this request only.
    set_actor(actor)
    return await answer


def _actor_of(context: Context) -> Actor:
    return Actor(context.access.principal, context.client_host, context.views.port)


# --- changes that are recorded from the response

# Requests whose changes are not complete yet. Bounded by the number of requests of all connections.
_unfinished: "set[asyncio.Future[Any]]" = set()

# Records the changes that a response reports. It runs with the client as the current actor.
_Record = Callable[[Audit, Any, Any], None]


def _recording(handle: Handle, record: _Record, audit: Audit) -> Handle:
    def handle_and_record(context: Context, request: Any) -> Any:
        if record is _record_commit and (request.generation_id_or_member_epoch >= 0 or request.member_id):
            # The commit of a member, which is not an administrative change.
            return handle(context, request)
        answer = handle(context, request)
        if not isinstance(answer, Awaitable):
            _record_as(context, request, answer, record, audit)
            return answer
        future = asyncio.ensure_future(answer)
        _unfinished.add(future)
        future.add_done_callback(_unfinished.discard)
        future.add_done_callback(lambda done: _record_done(context, request, done, record, audit))
        # If the client disconnects, the change is made nevertheless, and so it is recorded.
        return asyncio.shield(future)

    return handle_and_record


def _record_done(context: Context, request: Any, done: "asyncio.Future[Any]", record: _Record, audit: Audit) -> None:
    if not done.cancelled() and done.exception() is None:
        _record_as(context, request, done.result(), record, audit)


def _record_as(context: Context, request: Any, response: Any, record: _Record, audit: Audit) -> None:
    with acting(_actor_of(context)):
        record(audit, request, response)


def _record_deleted_groups(audit: Audit, request: Any, response: Any) -> None:
    for one in response.results:
        if one.error_code == ErrorCode.NONE:
            audit.changed("group.deleted", GROUP, one.group_id)


def _record_deleted_offsets(audit: Audit, request: Any, response: Any) -> None:
    _record_offsets(audit, "group.offsets_deleted", request.group_id, _changed_topics(request, response))


def _record_commit(audit: Audit, request: Any, response: Any) -> None:
    """Record offsets that a client set that is not a member, as `kafka-consumer-groups --reset-offsets` does.

    Consumers without a group do the same at each commit, so these entries are counted if they are repeated.
    """
    topics = _changed_topics(request, response)
    _record_offsets(audit, "group.offsets_set", request.group_id, topics, is_repeated=True)


def _changed_topics(request: Any, response: Any) -> Iterable[str]:
    if not isinstance(response.topics, list):
        # A large response is encoded already, so it is not known for which topics it reports errors.
        return (topic.name or topic.topic_id.hex() for topic in request.topics)
    return (topic.name or topic.topic_id.hex() for topic in response.topics if _has_success(topic.partitions))


def _record_offsets(
    audit: Audit, what: str, group_id: str, topics: Iterable[str], *, is_repeated: bool = False
) -> None:
    named = [name for _, name in zip(range(TOPICS_NAMED_MAX), topics, strict=False)]
    if named:
        (audit.changed_again if is_repeated else audit.changed)(what, GROUP, group_id, {"topics": tuple(named)})


def _record_deleted_records(audit: Audit, request: Any, response: Any) -> None:
    for topic in response.topics:
        offsets = {
            str(one.partition_index): one.low_watermark
            for one in topic.partitions[:TOPICS_NAMED_MAX]
            if one.error_code == ErrorCode.NONE
        }
        if offsets:
            audit.changed("topic.records_deleted", TOPIC, topic.name, {"startOffsets": offsets})


def _record_features(audit: Audit, request: Any, response: Any) -> None:
    if response.error_code == ErrorCode.NONE and not request.validate_only:
        names = [one.feature for one in request.feature_updates[:TOPICS_NAMED_MAX]]
        audit.changed("features.changed", CLUSTER, CLUSTER_NAME, {"set": names})


def _has_success(partitions: Iterable[Any]) -> bool:
    return any(one.error_code == ErrorCode.NONE for one in partitions)


_RECORDERS: Mapping[int, _Record] = {
    OFFSET_COMMIT: _record_commit,
    DELETE_RECORDS: _record_deleted_records,
    DELETE_GROUPS: _record_deleted_groups,
    OFFSET_DELETE: _record_deleted_offsets,
    UPDATE_FEATURES: _record_features,
}
