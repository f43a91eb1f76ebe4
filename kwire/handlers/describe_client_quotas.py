"""DescribeClientQuotas 0-1: the quotas of the entities that match a filter.

- The client needs DESCRIBE_CONFIGS on the cluster.
- Each component of the filter names a type of entity once: users, client ids or IP addresses. It matches a name, the
  default, or everything. With `strict` an entity must not have parts of other types.
- A filter that Kafka refuses is refused with Kafka's code.
- Version 1 is flexible.
"""

from collections.abc import Mapping

from kwire.access.acl import Operation
from kwire.access.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity
from kwire.concurrency.chunking import spread
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.access_context import AccessContext
from kwire.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, SPECIFIED = 0, 1, 2

# The name that a part of an entity must have, by type. None is the default, and _ANY is every name.
_ANY = object()
_Filter = Mapping[str, object]


async def handle(context: AccessContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        context.cluster.authorize(Operation.DESCRIBE_CONFIGS)
        wanted = _filter_of(request.components)
    except KafkaError as error:
        message = (error.message or "Cluster authorization failed.")[:1000]
        return DescribeClientQuotasResponse(error_code=error.code, error_message=message, entries=None)
    quotas, entries = context.services.quotas, []
    async for entity in spread(quotas.entities()):
        values = quotas.of(entity) if _matches(entity, wanted, is_strict=request.strict) else None
        if values is not None:
            entries.append(_entry(entity, values))
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=entries)


def _filter_of(components: list[ComponentData]) -> _Filter:
    wanted: dict[str, object] = {}
    for one in components:
        kind = one.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if one.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {one.match_type}")
        if (one.match is None) == (one.match_type == EXACT):
            message = "A filter of match type 0 needs a match string, and the other match types must not have one."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        wanted[kind] = _ANY if one.match_type == SPECIFIED else one.match
    if IP in wanted and len(wanted) > 1:
        message = "A filter for an IP address cannot also be for a user or client id."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return wanted


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts().items()],
        values=[ValueData(key=kind, value=float(value)) for kind, value in values.items()],
    )


def _matches(entity: QuotaEntity, wanted: _Filter, *, is_strict: bool) -> bool:
    parts = entity.parts()
    if is_strict and len(parts) != len(wanted):
        return False
    return all(kind in parts and (name is _ANY or parts[kind] == name) for kind, name in wanted.items())
