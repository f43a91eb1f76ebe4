"""/users: create, list and delete users, and change their passwords.

A request is answered when its change is durable. The server hashes the password; it is not stored.
"""

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import msgspec
from aiohttp import web

from kwire.access.acl import WILDCARD, Acl, AclFilter
from kwire.access.acl_checks import NAME_LENGTH_MAX
from kwire.access.authorizer import AclAuthorizer
from kwire.access.principal import USER, Principal
from kwire.access.roles import Role, acls_of_role
from kwire.access.users.passwords import PASSWORD_BYTES_MAX
from kwire.access.users.user_facts import UserFacts, acls_by_user, all_acls_of, exactly, facts_of_user
from kwire.access.users.users import NAME_BYTES_MAX, UserExists, UserNotFound, check_name, check_password_length
from kwire.config.settings.access import PASSWORD_LENGTH_MIN, PASSWORD_LENGTH_MIN_DEFAULT
from kwire.web.answers.errors import BadRequest, Refusal
from kwire.web.needs import ALTER_CLUSTER, DESCRIBE_CLUSTER
from kwire.web.requests.bodies import body_of, json_answer, query_of
from kwire.web.route import Answer, Route
from kwire.web.services import AccessServices

PAGE_USERS_MAX = 1_000
PAGE_USERS_DEFAULT = 100

Password = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=PASSWORD_BYTES_MAX,
        description=f"At least `{PASSWORD_LENGTH_MIN}` characters, by default {PASSWORD_LENGTH_MIN_DEFAULT}.",
    ),
]
UserName = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
PATH = {"user": UserName}


class NewUser(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A new user. Without a role it may do nothing until ACLs are added."""

    name: UserName
    password: Password
    role: Role | None = None
    prefix: (
        Annotated[
            str,
            msgspec.Meta(
                min_length=1,
                max_length=NAME_LENGTH_MAX,
                description="Restricts the role to topics, groups and transactional ids whose names begin with this.",
            ),
        ]
        | None
    ) = None


class NewPassword(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    password: Password


class ShownRole(msgspec.Struct, kw_only=True):
    """A role. `prefix` is `*` if the role is not restricted to names with a prefix."""

    role: Role
    prefix: str


class ShownUser(msgspec.Struct, kw_only=True):
    name: str
    mechanisms: list[str]
    roles: list[ShownRole]
    other_acls: Annotated[int, msgspec.Meta(description="The number of ACLs that belong to none of the roles.")]


class UsersQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    after: Annotated[str, msgspec.Meta(description="Only users whose names sort after this one.")] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_USERS_MAX)] = PAGE_USERS_DEFAULT


class UserList(msgspec.Struct, kw_only=True):
    """A page of users. `next` is the `after` of the next page, null on the last page."""

    users: list[ShownUser]
    next: str | None


class DeletionQuery(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    keep_acls: Annotated[bool, msgspec.Meta(description="Keep the ACLs of the user.")] = False


async def list_users(services: AccessServices, request: web.Request) -> web.Response:
    query = query_of(request, UsersQuery)
    names = services.users.names()
    first = bisect_right(names, query.after)
    page = names[first : first + query.limit]
    authorizer = services.authorizer
    acls = acls_by_user(await authorizer.find(AclFilter())) if isinstance(authorizer, AclAuthorizer) else {}
    shown = [_shown(_facts(services, name, acls.get(name, []))) for name in page]
    return json_answer(UserList(users=shown, next=page[-1] if first + query.limit < len(names) else None))


async def create(services: AccessServices, request: web.Request) -> web.Response:
    asked = await body_of(request, NewUser)
    with _refusals():
        check_name(asked.name)
        acls = _acls_of_role(asked)
    _check_length(services, asked.password)
    if asked.name in services.users:
        raise _exists(asked.name)
    # The ACLs come first: if they cannot be added, there is no user without the rights that it should have.
    added = await _add_acls(services, acls)
    try:
        with _refusals():
            await services.users.create(asked.name, asked.password)
    except BaseException:
        if added:
            await _acls_of(services).remove([exactly(acl) for acl in added])
        raise
    return json_answer(_shown(_facts(services, asked.name, acls)), 201)


async def change_password(services: AccessServices, request: web.Request) -> web.Response:
    asked = await body_of(request, NewPassword)
    _check_length(services, asked.password)
    with _refusals():
        await services.users.set_password(request.match_info["user"], asked.password)
    return web.Response(status=204)


async def delete(services: AccessServices, request: web.Request) -> web.Response:
    name = request.match_info["user"]
    keeps_acls = query_of(request, DeletionQuery).keep_acls
    with _refusals():
        await services.users.delete(name)
    if not keeps_acls and isinstance(services.authorizer, AclAuthorizer):
        # Otherwise a later user of the same name would have the rights of this one.
        await services.authorizer.remove([all_acls_of(name)])
    return web.Response(status=204)


def _check_length(services: AccessServices, password: str) -> None:
    try:
        check_password_length(password, services.password_length_min)
    except ValueError as error:
        raise BadRequest(str(error), code="InvalidPassword") from None


def _acls_of_role(asked: NewUser) -> list[Acl]:
    if asked.role is None:
        if asked.prefix is not None:
            raise ValueError("prefix restricts a role, and no role is given")
        return []
    return acls_of_role(asked.role, Principal(USER, asked.name), WILDCARD if asked.prefix is None else asked.prefix)


async def _add_acls(services: AccessServices, acls: list[Acl]) -> list[Acl]:
    """Add ACLs, and return those that did not exist."""
    if not acls:
        return []
    authorizer = _acls_of(services)
    known = set(authorizer.acls())
    await authorizer.add(acls)
    return [acl for acl in acls if acl not in known]


def _acls_of(services: AccessServices) -> AclAuthorizer:
    if not isinstance(services.authorizer, AclAuthorizer):
        message = "a role is a set of ACLs, and this server has no authorizer: set kwire.authorizer=acl"
        raise Refusal(message, code="SecurityDisabled", status=409)
    return services.authorizer


def _facts(services: AccessServices, name: str, acls: list[Acl]) -> UserFacts:
    return facts_of_user(name, [one.mechanism for one in services.users.describe(name) or ()], acls)


def _shown(facts: UserFacts) -> ShownUser:
    return ShownUser(
        name=facts.name,
        mechanisms=list(facts.mechanisms),
        roles=[ShownRole(role=one.role, prefix=one.prefix) for one in facts.roles],
        other_acls=facts.other_acls,
    )


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except UserNotFound as error:
        raise Refusal(f"the user {error} does not exist", code="UserNotFound", status=404) from None
    except UserExists as error:
        raise _exists(str(error)) from None
    except ValueError as error:
        raise BadRequest(str(error), code="InvalidUser") from None


def _exists(name: str) -> Refusal:
    return Refusal(f"the user {name} exists already", code="UserExists", status=409)


ROUTES: tuple[Route[AccessServices], ...] = (
    Route(
        "GET",
        "/users",
        list_users,
        summary="List users",
        description="Users in the order of their names, with the roles that their ACLs amount to.",
        tag="users",
        query=UsersQuery,
        answers={200: UserList},
        needs=(DESCRIBE_CLUSTER,),
    ),
    Route(
        "POST",
        "/users",
        create,
        summary="Create a user",
        description=(
            "The password serves SASL PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and HTTP Basic. A role is stored as ACLs; it "
            "needs an authorizer."
        ),
        tag="users",
        request=NewUser,
        answers={201: ShownUser},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "PUT",
        "/users/{user}/password",
        change_password,
        summary="Change the password of a user",
        description="Open connections of the user are closed within five seconds.",
        tag="users",
        parameters=PATH,
        request=NewPassword,
        answers={204: Answer("The password is changed.")},
        needs=(ALTER_CLUSTER,),
    ),
    Route(
        "DELETE",
        "/users/{user}",
        delete,
        summary="Delete a user",
        description="Its ACLs are deleted, too, unless `keep_acls` is true. Its connections are closed.",
        tag="users",
        parameters=PATH,
        query=DeletionQuery,
        answers={204: Answer("The user is deleted.")},
        needs=(ALTER_CLUSTER,),
    ),
)
