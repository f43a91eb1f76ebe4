"""kwire acl: add, list and delete ACLs, on a running or a stopped server."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from kwire.access.acl import (
    CLUSTER_NAME,
    OPERATIONS,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kwire.access.principal import Principal, parse_principal
from kwire.cli.access.admin import AccessAdmin, add_access_verb
from kwire.cli.framework.confirmation import add_yes, confirm
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import print_rows
from kwire.cli.framework.parser import CommandParser

COLUMNS = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
# The options that name resources.
RESOURCE_OPTIONS = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
}


class Resource(NamedTuple):
    """A resource that options name."""

    type: ResourceType
    name: str


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    add_ = add_access_verb(verbs, "add", "allow or deny operations on resources", add_acls, creates_data_dir=True)
    _add_options(add_, "to whom it applies: User:NAME, or User:* for everybody; repeatable")
    add_.epilog = (
        "Operations: read, write, create, delete, alter, describe, describe-configs, alter-configs, cluster-action, "
        "idempotent-write, two-phase-commit, all. Read and write include describe. A denied operation is denied even "
        "if another ACL allows it."
    )
    list_ = add_access_verb(verbs, "list", "list ACLs, of everything or as selected", list_acls)
    _add_options(list_, "only ACLs of this principal, such as User:alice; repeatable")
    delete_ = add_access_verb(verbs, "delete", "delete the ACLs that match all options", delete_acls)
    _add_options(delete_, "only ACLs of this principal, such as User:alice; repeatable")
    add_yes(delete_)


def _add_options(parser: argparse.ArgumentParser, principal_help: str) -> None:
    parser.add_argument("--principal", metavar="User:NAME", action="append", default=[], help=principal_help)
    parser.add_argument("--allow", metavar="OPERATIONS", help="allowed operations, separated by commas")
    parser.add_argument("--deny", metavar="OPERATIONS", help="denied operations, separated by commas")
    parser.add_argument("--topic", metavar="NAME", action="append", default=[], help="a topic, or *; repeatable")
    parser.add_argument("--group", metavar="NAME", action="append", default=[], help="a group, or *; repeatable")
    parser.add_argument(
        "--transactional-id", metavar="NAME", action="append", default=[], help="a transactional id, or *; repeatable"
    )
    parser.add_argument("--cluster", action="store_true", help="the cluster")
    parser.add_argument("--prefixed", action="store_true", help="the names are prefixes of names")
    parser.add_argument("--host", metavar="ADDRESS", help="the client's IP address (default: every address)")


def add_acls(admin: AccessAdmin, options: argparse.Namespace) -> None:
    resources, principals = _resources(options), _principals(options)
    if not principals:
        raise UsageError("--principal is missing: name to whom the ACL applies, such as --principal User:alice")
    if not resources:
        raise UsageError("the resource is missing: use --topic, --group, --transactional-id or --cluster")
    rules = _rules(options)
    if not rules:
        raise UsageError("the operations are missing: use --allow or --deny, such as --allow read,describe")
    acls = [
        Acl(resource.type, resource.name, _pattern(resource, options), principal, options.host or WILDCARD, *rule)
        for principal in principals
        for resource in resources
        for rule in rules
    ]
    for acl in acls:
        _check(acl)
    admin.add_acls(acls)
    _print(acls, options)


def list_acls(admin: AccessAdmin, options: argparse.Namespace) -> None:
    # A name selects every ACL that covers it, because the question usually is who may use the resource.
    by_name = PatternType.PREFIXED if options.prefixed else PatternType.MATCH
    found = (acl for one in _filters(options, by_name) for acl in admin.acls(one))
    _print(sorted(dict.fromkeys(found), key=_order), options)


def delete_acls(admin: AccessAdmin, options: argparse.Namespace) -> None:
    if not (options.principal or _resources(options)):
        raise UsageError("name the ACLs to delete with --principal, --topic, --group, --transactional-id or --cluster")
    by_name = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    filters = _filters(options, by_name)
    matching = list(dict.fromkeys(acl for one in filters for acl in admin.acls(one)))
    if not matching:
        raise ValueError("no ACL matches, nothing was deleted")
    confirm(f"delete {len(matching)} ACL{'' if len(matching) == 1 else 's'}", options)
    deleted = [acl for one in filters for acl in admin.remove_acls(one)]
    _print(sorted(deleted, key=_order), options)


def _filters(options: argparse.Namespace, by_name: PatternType) -> list[AclFilter]:
    """Return the filters of the options. An ACL is selected if it matches one of them."""
    principals: Sequence[Principal | None] = _principals(options) or [None]
    resources: Sequence[Resource | None] = _resources(options) or [None]
    return [
        AclFilter(
            resource_type=ResourceType.ANY if resource is None else resource.type,
            name=None if resource is None else resource.name,
            pattern_type=_pattern_filter(resource, by_name, options),
            principal=None if principal is None else str(principal),
            host=options.host,
            operation=operation,
            permission=permission,
        )
        for principal in principals
        for resource in resources
        for operation, permission in _rules(options) or [(Operation.ANY, Permission.ANY)]
    ]


def _pattern_filter(resource: Resource | None, by_name: PatternType, options: argparse.Namespace) -> PatternType:
    if resource is None:
        return PatternType.PREFIXED if options.prefixed else PatternType.ANY
    return PatternType.LITERAL if resource.type is ResourceType.CLUSTER else by_name


def _principals(options: argparse.Namespace) -> list[Principal]:
    try:
        return [parse_principal(text) for text in options.principal]
    except ValueError as error:
        raise UsageError(f"--principal: {error}") from None


def _resources(options: argparse.Namespace) -> list[Resource]:
    named = [
        Resource(resource_type, name)
        for option, resource_type in RESOURCE_OPTIONS.items()
        for name in getattr(options, option)
    ]
    if any(not resource.name for resource in named):
        raise UsageError(f"a resource name must not be empty; use {WILDCARD} for all resources of a type")
    return [*named, *([Resource(ResourceType.CLUSTER, CLUSTER_NAME)] if options.cluster else [])]


def _pattern(resource: Resource, options: argparse.Namespace) -> PatternType:
    if not options.prefixed or resource.type is ResourceType.CLUSTER:
        return PatternType.LITERAL
    if resource.name == WILDCARD:
        raise UsageError(f"{WILDCARD} already stands for all names: leave out --prefixed")
    return PatternType.PREFIXED


def _rules(options: argparse.Namespace) -> list[tuple[Operation, Permission]]:
    return [
        *((operation, Permission.ALLOW) for operation in _operations("--allow", options.allow)),
        *((operation, Permission.DENY) for operation in _operations("--deny", options.deny)),
    ]


def _operations(option: str, text: str | None) -> Iterable[Operation]:
    known = {_text(one): one for one in Operation if one not in (Operation.UNKNOWN, Operation.ANY)}
    for part in (text or "").split(",") if text is not None else ():
        name = part.strip().lower().replace("_", "-")
        if name not in known:
            raise UsageError(f"{option}: {part.strip()!r} is not an operation; operations are {', '.join(known)}")
        yield known[name]


def _check(acl: Acl) -> None:
    allowed = (Operation.ALL, *OPERATIONS[acl.resource_type])
    if acl.operation not in allowed:
        raise UsageError(
            f"a {_text(acl.resource_type)} has no operation {_text(acl.operation)}; it has "
            f"{', '.join(map(_text, allowed))}"
        )


def _order(acl: Acl) -> tuple[Any, ...]:
    return (str(acl.principal), acl.resource_type, acl.name, acl.pattern_type, acl.permission, acl.operation, acl.host)


def _text(value: Operation | ResourceType | PatternType | Permission) -> str:
    return value.name.lower().replace("_", "-")


def _print(acls: Sequence[Acl], options: argparse.Namespace) -> None:
    rows = [
        {
            "principal": str(acl.principal),
            "permission": _text(acl.permission),
            "operation": _text(acl.operation),
            "resource": _text(acl.resource_type),
            "name": acl.name,
            "pattern": _text(acl.pattern_type),
            "host": acl.host,
        }
        for acl in acls
    ]
    print_rows(rows, COLUMNS, options)
