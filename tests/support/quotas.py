"""Requests that set and show quotas, for tests of handlers and of running servers."""

from collections.abc import Mapping
from typing import Any

from kwire.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kwire.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from tests.support.node import QuietNode

# The names of an entity's parts, by type; None is the default.
Entity = Mapping[str, str | None]
Filter = tuple[str, int, str | None]


def entry(entity: Entity, values: Mapping[str, float | None]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alteration(*entries: EntryData, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


async def alter(node: QuietNode, entity: Entity, values: Mapping[str, float | None]) -> None:
    """Set quotas, or remove those whose value is None."""
    answer = await node.ask(alteration(entry(entity, values)), 1)
    assert [one.error_code for one in answer.entries] == [0], answer.entries[0].error_message


def describe(*components: Filter, strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )


def described(answer: Any) -> list[tuple[Entity, dict[str, float]]]:
    """The entities of a response, in order, and their quotas."""
    assert answer.error_code == 0, answer.error_message
    return [
        (
            {part.entity_type: part.entity_name for part in one.entity},
            {value.key: value.value for value in one.values},
        )
        for one in answer.entries
    ]
