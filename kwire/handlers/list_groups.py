"""ListGroups 0-5: every group of this node, including groups that have only offsets.

- A client with DESCRIBE on the cluster gets all groups, any other client the groups on which it has DESCRIBE.
- While a shard of the coordinator is being loaded, the error is COORDINATOR_LOAD_IN_PROGRESS, because the list would be
  incomplete.
- Version 1 adds the throttle time. Version 4 adds the state of each group, and a filter by state.
- Version 5 adds the type of each group (classic, consumer), and a filter by type.
- The filters are case-insensitive. Unknown states and types match no group.
"""

import inspect
from collections.abc import Iterator
from itertools import chain
from typing import Any

from kwire.access.acl import Operation
from kwire.broker.chunked_answers import answer_in_chunks
from kwire.concurrency.chunking import spread
from kwire.coordinator.client_requests import answers_of_all_shards
from kwire.coordinator.group.commands import ListedGroup as GroupListing
from kwire.coordinator.group.commands import ListGroups
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.context import Context
from kwire.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


async def handle(context: Context, request: ListGroupsRequest) -> ListGroupsResponse:
    states = frozenset([state.strip().lower() async for state in spread(request.states_filter)])
    kinds = frozenset([kind.lower() async for kind in spread(request.types_filter)])
    try:
        answers = await answers_of_all_shards(
            context.groups.coordinator_of_all(),
            lambda shard_key: ListGroups(group_id=shard_key, states=states, kinds=kinds),
        )
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code, groups=[])
    groups: Iterator[GroupListing] = chain.from_iterable(answer.groups for answer in answers)
    if not context.cluster.allows(Operation.DESCRIBE):
        groups = iter([one async for one in spread(groups) if context.groups.allows(Operation.DESCRIBE, one.group_id)])
    response = answer_in_chunks(
        _listed(groups),
        lambda group: 1,
        _response,
        context.elements_encoder(ListGroupsResponse, "groups"),
        lambda count, chunks: _response(context.encoded_elements(count, chunks)),
    )
    return await response if inspect.isawaitable(response) else response


def _listed(groups: Iterator[GroupListing]) -> Iterator[ListedGroup]:
    for group in groups:
        yield ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type,
            group_state=group.state,
            group_type=group.kind,
        )


def _response(groups: Any) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups)
