"""kwire user: create, list and delete users, and change their passwords, on a running or a stopped server."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from kwire.access.acl import WILDCARD, Acl, AclFilter
from kwire.access.principal import USER, Principal
from kwire.access.roles import Role, acls_of_role
from kwire.access.users.user_facts import acls_by_user, all_acls_of, exactly, facts_of_user
from kwire.access.users.users import check_name
from kwire.cli.access.admin import AccessAdmin, AclsDisabled, add_access_verb
from kwire.cli.access.passwords import add_password_stdin, new_password
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import is_data, print_done, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.several_names import for_each

COLUMNS = ("user", "mechanisms", "roles", "other_acls")


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    create_ = add_access_verb(verbs, "create", "create a user", create, creates_data_dir=True)
    create_.add_argument("name", metavar="NAME")
    create_.add_argument(
        "--role",
        choices=[role.value for role in Role],
        help="what the user may do (default: nothing, until you add ACLs); a role is a set of ACLs",
    )
    create_.add_argument(
        "--prefix", help="restrict the role to topics, groups and transactional ids whose names begin with this"
    )
    add_password_stdin(create_)
    add_access_verb(verbs, "list", "list users with their mechanisms and roles", list_users)
    passwd = add_access_verb(verbs, "passwd", "change the password of a user", change_password)
    passwd.add_argument("name", metavar="NAME")
    add_password_stdin(passwd)
    delete_ = add_access_verb(verbs, "delete", "delete users and their ACLs", delete)
    delete_.add_argument("names", metavar="NAME", nargs="+")
    add_yes(delete_)
    delete_.add_argument("--keep-acls", action="store_true", help="do not delete the ACLs of the users")


def create(admin: AccessAdmin, options: argparse.Namespace) -> None:
    name = options.name
    check_name(name)
    acls = _acls_of_role(options)
    if name in admin.users():
        raise ValueError(f"user {name} exists already: change its password with kwire user passwd")
    password = new_password(name, admin.password_length_min(), options)
    # The ACLs come first: if they cannot be added, there is no user without the rights that it should have.
    known = set(admin.acls(all_acls_of(name))) if acls else set()
    new = [acl for acl in acls if acl not in known]
    if new:
        admin.add_acls(new)
    try:
        admin.create_user(name, password)
    except BaseException:
        with suppress(ValueError, OSError):
            for acl in new:
                admin.remove_acls(exactly(acl))
        raise
    print_done("created", [name], options)


def list_users(admin: AccessAdmin, options: argparse.Namespace) -> None:
    acls: dict[str, list[Acl]] = {}
    with suppress(AclsDisabled):
        acls = acls_by_user(admin.acls(AclFilter()))
    rows = [_row(name, mechanisms, acls.get(name, ())) for name, mechanisms in admin.users().items()]
    if is_data(options):
        print_rows(rows, COLUMNS, options)
        return
    texts = [
        {
            **row,
            "mechanisms": ", ".join(row["mechanisms"]),
            "roles": ", ".join(_role_text(one) for one in row["roles"]) or None,
            "other_acls": row["other_acls"] or None,
        }
        for row in rows
    ]
    print_rows(texts, COLUMNS, options)


def change_password(admin: AccessAdmin, options: argparse.Namespace) -> None:
    if options.name not in admin.users():
        raise ValueError(f"user {options.name} does not exist")
    password = new_password(options.name, admin.password_length_min(), options)
    admin.set_password(options.name, password)
    print_done("changed", [options.name], options)


def delete(admin: AccessAdmin, options: argparse.Namespace) -> int:
    confirm(f"delete {counted_names('user', options.names)}{'' if options.keep_acls else ' with all ACLs'}", options)

    def delete_one(name: str) -> None:
        admin.delete_user(name)
        if not options.keep_acls:
            # Otherwise a later user of the same name would have the rights of this one.
            with suppress(AclsDisabled):
                admin.remove_acls(all_acls_of(name))

    return for_each(options.names, delete_one).finish("deleted", options)


def _acls_of_role(options: argparse.Namespace) -> list[Acl]:
    if options.role is None:
        if options.prefix is not None:
            raise UsageError("--prefix restricts a role: name it with --role")
        return []
    prefix = WILDCARD if options.prefix is None else options.prefix
    return acls_of_role(Role(options.role), Principal(USER, options.name), prefix)


def _row(name: str, mechanisms: Sequence[str], acls: Sequence[Acl]) -> dict[str, Any]:
    facts = facts_of_user(name, mechanisms, acls)
    roles = [{"role": one.role.value, "prefix": one.prefix} for one in facts.roles]
    return {"user": name, "mechanisms": list(mechanisms), "roles": roles, "other_acls": facts.other_acls}


def _role_text(grant: dict[str, str]) -> str:
    return grant["role"] if grant["prefix"] == WILDCARD else f"{grant['role']} of {grant['prefix']}*"
