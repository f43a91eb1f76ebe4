"""AlterClientQuotas 0-1: set or remove quotas of users, client ids and IP addresses.

- The client needs ALTER_CONFIGS on the cluster.
- Each entity has its own result. A wrong entity, a wrong name or value of a quota, a quota that is named twice, and an
  entity that is named twice are INVALID_REQUEST. An entity above the maximum number of entities is POLICY_VIOLATION.
- To remove a quota that does not exist is not an error.
- With validate_only the request is checked and nothing is changed.
- Quotas apply to open connections from their next request on. Version 1 is flexible.
"""

from collections import Counter
from collections.abc import Sequence

from kwire.access.acl import Operation
from kwire.access.quotas.entities import QuotaEntity, entity_of
from kwire.access.quotas.quotas import CHANGES_PER_COMMIT, Alteration, Quotas
from kwire.concurrency.chunking import yield_to_loop
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.access_context import AccessContext
from kwire.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    EntryData,
)


async def handle(context: AccessContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    entries = request.entries
    try:
        context.cluster.authorize(Operation.ALTER_CONFIGS)
    except KafkaError as error:
        refused = KafkaError(error.code, "Cluster authorization failed.")
        return AlterClientQuotasResponse(entries=[_result(one, refused) for one in entries])
    results: list[AlteredEntryData] = []
    seen: Counter[QuotaEntity] = Counter()
    for at in range(0, len(entries), CHANGES_PER_COMMIT):
        if at:
            await yield_to_loop()
        some = entries[at : at + CHANGES_PER_COMMIT]
        results += await _alter(context.services.quotas, some, seen, validate_only=request.validate_only)
    return AlterClientQuotasResponse(entries=results)


async def _alter(
    quotas: Quotas, entries: Sequence[EntryData], seen: "Counter[QuotaEntity]", *, validate_only: bool
) -> list[AlteredEntryData]:
    """Change the quotas of some entities with one commit: either all valid ones or none."""
    outcomes: list[Alteration | KafkaError] = []
    for one in entries:
        try:
            alteration = _alteration(one)
            seen[alteration.entity] += 1
            if seen[alteration.entity] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {alteration.entity}")
            quotas.check(alteration)
            outcomes.append(alteration)
        except KafkaError as error:
            outcomes.append(error)
    failure: KafkaError | None = None
    if not validate_only:
        try:
            await quotas.alter(one for one in outcomes if isinstance(one, Alteration))
        except KafkaError as error:
            failure = error
    return [
        _result(entry, outcome if isinstance(outcome, KafkaError) else failure)
        for entry, outcome in zip(entries, outcomes, strict=True)
    ]


def _alteration(entry: EntryData) -> Alteration:
    entity = entity_of((one.entity_type, one.entity_name) for one in entry.entity)
    values: dict[str, float | None] = {}
    for one in entry.ops:
        if one.key in values:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Duplicate quota key {one.key[:200]}")
        values[one.key] = None if one.remove else one.value
    return Alteration(entity, values)


def _result(entry: EntryData, error: KafkaError | None) -> AlteredEntryData:
    if error is None:
        return AlteredEntryData(error_code=ErrorCode.NONE, error_message=None, entity=entry.entity)
    return AlteredEntryData(error_code=error.code, error_message=error.message, entity=entry.entity)
