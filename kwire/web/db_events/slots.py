"""POST /db/internal/v1/subscriptions/request_slot and release_slot: subscription slots for sessions on other nodes.

They are for the nodes of a cluster, not for users, and need a root key. A slot that is granted here expires after
SLOT_SECONDS. The node with the session renews it before: it sends request_slot again with the `slot_id` of the answer.
If that fails until SLOT_SECONDS after the last request that succeeded, the session has lost its slot: the node takes a
new slot, without `slot_id`, or ends the session.
"""

from typing import Annotated

import msgspec
from aiohttp import web

from kwire.access.usage.subscription_slots import SLOT_SECONDS, SlotDenied, SlotsUnavailable
from kwire.web.answers.errors import BadRequest
from kwire.web.db_events.key_clients import Unavailable, db_statuses, root_key_of
from kwire.web.db_events.subscribe import denied
from kwire.web.needs import ALTER_CLUSTER
from kwire.web.requests.bodies import body_of, json_answer
from kwire.web.route import Route
from kwire.web.services import DbEventServices

ID_LENGTH_MAX = 100
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_LENGTH_MAX)]


class SlotRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The key of a session, and the node that has the session."""

    key_uuid: Annotated[Id, msgspec.Meta(description="The id of the key that opened the session.")]
    node: (
        Annotated[Id, msgspec.Meta(description="The node with the session. Absent: the id of the root key.")] | None
    ) = None
    slot_id: (
        Annotated[Id, msgspec.Meta(description="The slot to renew or to release. Absent: a new one, or any one.")]
        | None
    ) = None


class GrantedSlot(msgspec.Struct, kw_only=True):
    """A slot. It is freed after `expires_in_secs`, unless it is renewed."""

    slot_id: str
    expires_in_secs: int
    current_subscriptions: int
    subscriptions_limit: int | None


class ReleasedSlot(msgspec.Struct, kw_only=True):
    """Whether a slot was freed. It was not if it has expired, or was released before."""

    released: bool
    current_subscriptions: int


async def request_slot(services: DbEventServices, request: web.Request) -> web.Response:
    root = root_key_of(services, request)
    asked = await body_of(request, SlotRequest)
    key = services.usage.keys.valid(asked.key_uuid)
    if key is None:
        raise BadRequest("key_uuid is not the id of a valid key", code="KeyNotFound")
    slots = services.usage.slots
    try:
        with db_statuses():
            slot = await slots.request_for(key, f"peer-{asked.node or root.id}", asked.slot_id)
    except SlotDenied as error:
        raise denied(error) from None
    except SlotsUnavailable as error:
        raise Unavailable(str(error), code="SlotsUnavailable") from None
    return json_answer(
        GrantedSlot(
            slot_id=slot.slot_id,
            expires_in_secs=SLOT_SECONDS,
            current_subscriptions=slots.count(key.usage_id),
            subscriptions_limit=key.limits.max_subscriptions,
        )
    )


async def release_slot(services: DbEventServices, request: web.Request) -> web.Response:
    root = root_key_of(services, request)
    asked = await body_of(request, SlotRequest)
    # A key that was revoked has no aliases any longer. The slots of its aliases expire.
    key = services.usage.keys.get(asked.key_uuid)
    usage_id = asked.key_uuid if key is None else key.usage_id
    released = services.usage.slots.release_for(usage_id, f"peer-{asked.node or root.id}", asked.slot_id)
    return json_answer(ReleasedSlot(released=released, current_subscriptions=services.usage.slots.count(usage_id)))


_DESCRIPTION = "For the nodes of a cluster, with a root key. Not for users."

ROUTES: tuple[Route[DbEventServices], ...] = (
    Route(
        "POST",
        "/db/internal/v1/subscriptions/request_slot",
        request_slot,
        summary="Take or renew a subscription slot for another node",
        description=f"{_DESCRIPTION} With `slot_id` it is renewed. The status is 503 if the key has no slot left.",
        tag="db events",
        request=SlotRequest,
        answers={200: GrantedSlot},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "POST",
        "/db/internal/v1/subscriptions/release_slot",
        release_slot,
        summary="Release a subscription slot of another node",
        description=f"{_DESCRIPTION} A release with `slot_id` may be repeated.",
        tag="db events",
        request=SlotRequest,
        answers={200: ReleasedSlot},
        needs=(ALTER_CLUSTER,),
    ),
)
