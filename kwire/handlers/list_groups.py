"""ListGroups 0-5: every group of this node, also those of which there is nothing but offsets.

- A shard that is still being loaded makes the answer COORDINATOR_LOAD_IN_PROGRESS: half a list would be a wrong one.
- 1: throttling. 4: the state of each group, and only groups in the states that are asked for.
- 5: the type of each group (classic, consumer), and only groups of the types that are asked for.
- States and types are compared without regard to case; one that does not exist matches nothing.
"""

import inspect
from collections.abc import Iterator
from itertools import chain
from typing import Any

from kwire.broker.chunking import spread
from kwire.broker.turns import answer_in_turns
from kwire.coordinator.asking import every_shard
from kwire.coordinator.group.commands import ListAnswer, ListGroups
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.context import Context
from kwire.wire.codec import EncodedElements, elements_encoder
from kwire.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    states = frozenset([state.strip().lower() async for state in spread(request.states_filter)])
    kinds = frozenset([kind.lower() async for kind in spread(request.types_filter)])
    try:
        answers = await every_shard(
            context.services.groups, lambda shard_key: ListGroups(group_id=shard_key, states=states, kinds=kinds)
        )
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code, groups=[])
    response = answer_in_turns(
        _listed(answers),
        lambda group: 1,
        _response,
        lambda some: elements_encoder(ListGroupsResponse, "groups", context.api_version)(some),
        lambda count, portions: _response(EncodedElements(count, b"".join(portions))),
    )
    return await response if inspect.isawaitable(response) else response


def _listed(answers: list[ListAnswer]) -> Iterator[ListedGroup]:
    for group in chain.from_iterable(answer.groups for answer in answers):
        yield ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.kind,
        )


def _response(groups: Any) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)
