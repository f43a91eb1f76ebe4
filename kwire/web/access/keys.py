"""/keys: create, list, change, rotate and revoke API keys.

A request is answered when its change is durable. Only the answer to the request that makes a secret contains it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, TypeVar

import msgspec
from aiohttp import hdrs, web

from kwire.access.keys.key import (
    DESCRIPTION_LENGTH_MAX,
    DESCRIPTION_PATTERN,
    LIMIT_MAX,
    SCOPE_NAME_LENGTH_MAX,
    IsAlias,
    IssuedKey,
    Key,
    KeyLimits,
    KeyNotFound,
    NewKey,
    TooManyKeys,
)
from kwire.access.keys.keys import OVERLAP_SECONDS_DEFAULT, OVERLAP_SECONDS_MAX
from kwire.access.keys.shown_key import ShownKey, facts_of
from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.needs import ALTER_CLUSTER
from kwire.web.requests.bodies import body_of, check_is_json, decoded, json_answer, query_of, raw_body_of
from kwire.web.route import AnyOf, Route
from kwire.web.services import AccessServices

S = TypeVar("S", bound=msgspec.Struct)

PAGE_KEYS_MAX = 1_000
PAGE_KEYS_DEFAULT = 100
# A hundred years.
LIFETIME_SECONDS_MAX = 100 * 366 * 24 * 3600
KEY_ID_LENGTH_MAX = 100

Limit = Annotated[int, msgspec.Meta(ge=0, le=LIMIT_MAX)]
Rate = Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)]
ScopeName = Annotated[str, msgspec.Meta(max_length=SCOPE_NAME_LENGTH_MAX, pattern="^[A-Za-z0-9._:-]+$")]
PATH = {"key": Annotated[str, msgspec.Meta(min_length=1, max_length=KEY_ID_LENGTH_MAX)]}


class NewAlias(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    expires_in_secs: Annotated[int, msgspec.Meta(ge=1, le=LIFETIME_SECONDS_MAX)] | None = None
    description: Annotated[str, msgspec.Meta(max_length=DESCRIPTION_LENGTH_MAX, pattern=DESCRIPTION_PATTERN)] = ""


class LimitedKey(NewAlias, kw_only=True, forbid_unknown_fields=True):
    max_events: (
        Annotated[
            Limit, msgspec.Meta(description="Events that may be published until 24 hours after the limit is hit.")
        ]
        | None
    ) = None
    max_subscriptions: Annotated[Limit, msgspec.Meta(description="Subscriptions that may be open at once.")] | None = (
        None
    )
    publish_rate: Annotated[Rate, msgspec.Meta(description="Events per second.")] | None = None


class NewScopedKey(LimitedKey, kw_only=True, forbid_unknown_fields=True):
    """A key with a scope. A null limit means no limit. A root key may have a scope, for endpoints that need one."""

    scope: ScopeName
    root: bool = False


class NewRootKey(LimitedKey, kw_only=True, forbid_unknown_fields=True):
    """A root key without a scope."""

    root: Annotated[bool, msgspec.Meta(extra_json_schema={"const": True})]


class NewScopedOrRootKey(LimitedKey, kw_only=True, forbid_unknown_fields=True):
    """Either of the two."""

    scope: ScopeName | msgspec.UnsetType = msgspec.UNSET
    root: bool = False


class IssuedSecret(ShownKey, kw_only=True):
    """A key with its new secret, which is never shown again."""

    secret: Annotated[str, msgspec.Meta(description="The password of SASL PLAIN, whose user name is the id.")]
    token: Annotated[str, msgspec.Meta(description="What HTTP clients send as `Authorization: Bearer TOKEN`.")]


class ChangeLimits(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """New limits. A limit that is absent stays as it is; null removes it."""

    max_events: Limit | msgspec.UnsetType | None = msgspec.UNSET
    max_subscriptions: Limit | msgspec.UnsetType | None = msgspec.UNSET
    publish_rate: Rate | msgspec.UnsetType | None = msgspec.UNSET


class RotateKey(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    overlap_secs: Annotated[
        int, msgspec.Meta(ge=0, le=OVERLAP_SECONDS_MAX, description="How long the old secret stays valid.")
    ] = OVERLAP_SECONDS_DEFAULT


class KeysQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[str, msgspec.Meta(description="Only keys whose ids sort after this one.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_KEYS_MAX)] = PAGE_KEYS_DEFAULT


class KeyList(msgspec.Struct, kw_only=True):
    """A page of keys. `next` is the `after` of the next page, null on the last page."""

    keys: list[ShownKey]
    next: str | None


class ShownUsage(msgspec.Struct, kw_only=True):
    """What a key and its aliases use of their limits at the moment."""

    events: Annotated[
        int, msgspec.Meta(description="Events that count for `max_events`. Without this limit they are not counted.")
    ]
    subscriptions: Annotated[int, msgspec.Meta(description="Subscriptions that are open.")]
    last_used_at: str | None


class RevokedKeys(msgspec.Struct, kw_only=True):
    """The ids of the revoked keys: the key and its aliases."""

    revoked: list[str]


async def create(services: AccessServices, request: web.Request) -> web.Response:
    asked = await body_of(request, NewScopedOrRootKey)
    new = NewKey(
        scope=None if asked.scope is msgspec.UNSET else asked.scope,
        limits=KeyLimits(asked.max_events, asked.max_subscriptions, asked.publish_rate),
        is_root=asked.root,
        expires_ms=_expires_ms(services, asked),
        description=asked.description,
    )
    with _refusals():
        return _issued(services, await services.keys.create(new), 201)


async def create_alias(services: AccessServices, request: web.Request) -> web.Response:
    asked = await _optional_body(request, NewAlias)
    new = NewKey(
        alias_of=request.match_info["key"], expires_ms=_expires_ms(services, asked), description=asked.description
    )
    with _refusals():
        return _issued(services, await services.keys.create(new), 201)


async def list_keys(services: AccessServices, request: web.Request) -> web.Response:
    query = query_of(request, KeysQuery)
    # Request one key more than `limit`: if it exists, there is a next page.
    page = services.keys.page(query.after, query.limit + 1)
    listed = [_shown(services, key) for key in page[: query.limit]]
    return json_answer(KeyList(keys=listed, next=listed[-1].id if len(page) > query.limit else None))


async def get(services: AccessServices, request: web.Request) -> web.Response:
    return json_answer(_shown(services, _key_of(services, request)))


async def get_usage(services: AccessServices, request: web.Request) -> web.Response:
    key = _key_of(services, request)
    usage = services.key_usage
    return json_answer(
        ShownUsage(
            events=usage.events.used(key.usage_id),
            subscriptions=usage.slots.count(key.usage_id),
            last_used_at=_shown(services, key).last_used_at,
        )
    )


async def change(services: AccessServices, request: web.Request) -> web.Response:
    asked = await _optional_body(request, ChangeLimits)
    given = {name: value for name in KeyLimits._fields if (value := getattr(asked, name)) is not msgspec.UNSET}
    with _refusals():
        return json_answer(_shown(services, await services.keys.set_limits(request.match_info["key"], given)))


async def rotate(services: AccessServices, request: web.Request) -> web.Response:
    asked = await _optional_body(request, RotateKey)
    with _refusals():
        return _issued(services, await services.keys.rotate(request.match_info["key"], asked.overlap_secs), 200)


async def revoke(services: AccessServices, request: web.Request) -> web.Response:
    with _refusals():
        return json_answer(RevokedKeys(revoked=sorted(await services.keys.revoke(request.match_info["key"]))))


def _key_of(services: AccessServices, request: web.Request) -> Key:
    key_id = request.match_info["key"]
    key = services.keys.get(key_id)
    if key is None:
        raise _not_found(f"the key {key_id} does not exist")
    return key


async def _optional_body(request: web.Request, shape: type[S]) -> S:
    """Return the body as a Struct whose fields are all optional. The body may be empty."""
    check_is_json(request)
    raw = await raw_body_of(request)
    return decoded(raw, shape) if raw else shape()


def _expires_ms(services: AccessServices, asked: NewAlias) -> int | None:
    return None if asked.expires_in_secs is None else services.clock.now_ms() + asked.expires_in_secs * 1000


def _shown(services: AccessServices, key: Key) -> ShownKey:
    return ShownKey(**facts_of(services.keys, key, services.clock.now_ms()))


def _issued(services: AccessServices, issued: IssuedKey, status: int) -> web.Response:
    facts = facts_of(services.keys, issued.key, services.clock.now_ms())
    answer = json_answer(
        IssuedSecret(**facts, secret=issued.credentials.secret, token=issued.credentials.token), status
    )
    answer.headers[hdrs.CACHE_CONTROL] = "no-store"
    return answer


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except KeyNotFound as error:
        raise _not_found(str(error)) from None
    except IsAlias as error:
        raise Refusal(str(error), code="KeyIsAlias", status=409) from None
    except TooManyKeys as error:
        raise Refusal(str(error), code="TooManyKeys", status=429) from None
    except ValueError as error:
        raise BadRequest(str(error), code="InvalidKey") from None


def _not_found(message: str) -> Refusal:
    return Refusal(message, code="KeyNotFound", status=404)


ROUTES: tuple[Route[AccessServices], ...] = (
    Route(
        "POST",
        "/keys",
        create,
        summary="Create an API key",
        description="The secret and the token are shown only in this answer. The scope is created if it is new.",
        tag="keys",
        request=AnyOf((NewScopedKey, NewRootKey)),
        answers={201: IssuedSecret},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "POST",
        "/keys/{key}/aliases",
        create_alias,
        summary="Create an alias of an API key",
        description=(
            "A further key with a secret of its own. It shares the scope, the limits and the usage of its key, and can "
            "be revoked alone. The body may be empty."
        ),
        tag="keys",
        parameters=PATH,
        request=NewAlias,
        answers={201: IssuedSecret},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "GET",
        "/keys",
        list_keys,
        summary="List API keys",
        tag="keys",
        query=KeysQuery,
        answers={200: KeyList},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "GET",
        "/keys/{key}",
        get,
        summary="Show an API key",
        tag="keys",
        parameters=PATH,
        answers={200: ShownKey},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "GET",
        "/keys/{key}/usage",
        get_usage,
        summary="Show what an API key uses of its limits",
        description="An alias has the usage of its key.",
        tag="keys",
        parameters=PATH,
        answers={200: ShownUsage},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "PATCH",
        "/keys/{key}",
        change,
        summary="Change the limits of an API key",
        description="They apply to its aliases, too.",
        tag="keys",
        parameters=PATH,
        request=ChangeLimits,
        answers={200: ShownKey},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "POST",
        "/keys/{key}/rotate",
        rotate,
        summary="Replace the secret of an API key",
        description=(
            "The old secret stays valid for `overlap_secs`. At most two secrets are valid: one that an earlier "
            "rotation has replaced ends immediately. The body may be empty."
        ),
        tag="keys",
        parameters=PATH,
        request=RotateKey,
        answers={200: IssuedSecret},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "DELETE",
        "/keys/{key}",
        revoke,
        summary="Revoke an API key",
        description=(
            "Its aliases are revoked, too. Open connections and streams end within five seconds. The data of its scope "
            "stays."
        ),
        tag="keys",
        parameters=PATH,
        answers={200: RevokedKeys},
        needs=(ALTER_CLUSTER,),
    ),
)
