"""kwire key: create, list, alter, rotate and revoke API keys, on a running or a stopped server."""

import argparse
from collections.abc import Callable
from typing import Any

from kwire.access.keys.keys import OVERLAP_SECONDS_DEFAULT
from kwire.cli.access.key_admin import KeyAdmin, KeyToCreate, opened_keys
from kwire.cli.connection.options import add_http_options
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output, print_done, print_object, print_rows
from kwire.cli.framework.parser import CommandParser, add_verb
from kwire.cli.framework.several_names import for_each

COLUMNS = ("id", "scope", "prefix", "root", "alias_of", "status", "expires_at", "last_used_at", "description")
# The limits of a key: the option of each is its name with hyphens.
LIMITS = ("max_events", "max_subscriptions", "publish_rate")
NO_LIMIT = "none"
# The fields that `create` and `rotate` print.
ISSUED = ("id", "secret", "token")


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    create_ = _add(verbs, "create", "create a key and print its secret, which is never shown again", create)
    create_.add_argument("--scope", help="the data scope: clients with this key see only the names of this scope")
    create_.add_argument(
        "--max-events", metavar="N", type=int, help="events that may be published per day (default: no limit)"
    )
    create_.add_argument(
        "--max-subscriptions", metavar="N", type=int, help="subscriptions that may be open at once (default: no limit)"
    )
    create_.add_argument("--publish-rate", metavar="N", type=int, help="events per second (default: no limit)")
    create_.add_argument(
        "--root", action="store_true", help="the key of an administrator: it sees full names and may do everything"
    )
    create_.add_argument(
        "--alias-of", metavar="ID", help="share the scope, the limits and the usage of this key, with an own secret"
    )
    create_.add_argument("--expires-in", metavar="SECONDS", type=int, help="how long the key is valid (default: ever)")
    create_.add_argument("--description", default="", help="a note for administrators")
    _add(verbs, "list", "list keys, without their secrets", list_keys)
    alter_ = _add(verbs, "alter", "change limits of a key and its aliases; others stay as they are", alter)
    alter_.add_argument("id", metavar="ID")
    for name in LIMITS:
        alter_.add_argument(
            f"--{name.replace('_', '-')}", metavar="N", type=_limit, help=f"the new limit, or {NO_LIMIT} to remove it"
        )
    rotate_ = _add(verbs, "rotate", "replace the secret of a key, and print the new one", rotate)
    rotate_.add_argument("id", metavar="ID")
    rotate_.add_argument(
        "--overlap",
        metavar="SECONDS",
        type=int,
        default=OVERLAP_SECONDS_DEFAULT,
        help=f"how long the old secret stays valid (default {OVERLAP_SECONDS_DEFAULT}); 0 ends it immediately",
    )
    revoke_ = _add(verbs, "revoke", "revoke keys and their aliases; open connections are closed", revoke)
    revoke_.add_argument("ids", metavar="ID", nargs="+")
    add_yes(revoke_)


def create(admin: KeyAdmin, options: argparse.Namespace) -> None:
    wanted = KeyToCreate(
        scope=options.scope,
        root=options.root,
        alias_of=options.alias_of,
        max_events=options.max_events,
        max_subscriptions=options.max_subscriptions,
        publish_rate=options.publish_rate,
        expires_in_secs=options.expires_in,
        description=options.description,
    )
    _print_issued(admin.create(wanted), options)


def list_keys(admin: KeyAdmin, options: argparse.Namespace) -> None:
    print_rows(admin.keys(), COLUMNS, options)


def alter(admin: KeyAdmin, options: argparse.Namespace) -> None:
    given = {name: value for name in LIMITS if (value := getattr(options, name)) is not None}
    if not given:
        raise UsageError("no limit is given: use --max-events, --max-subscriptions or --publish-rate")
    changed = admin.set_limits(
        options.id, {name: None if value == NO_LIMIT else value for name, value in given.items()}
    )
    print_rows([changed], ("id", "scope", *LIMITS), options)


def _limit(text: str) -> int | str:
    """Return the value of an option of `alter`. argparse reports a ValueError."""
    return NO_LIMIT if text == NO_LIMIT else int(text)


def rotate(admin: KeyAdmin, options: argparse.Namespace) -> None:
    _print_issued(admin.rotate(options.id, options.overlap), options)


def revoke(admin: KeyAdmin, options: argparse.Namespace) -> int:
    confirm(f"revoke {counted_names('key', options.ids)} and all aliases", options)
    revoked: list[str] = []
    outcomes = for_each(options.ids, lambda key_id: revoked.extend(admin.revoke(key_id)))
    print_done("revoked", revoked, options)
    return outcomes.code


def _print_issued(issued: dict[str, Any], options: argparse.Namespace) -> None:
    shown = {name: issued[name] for name in ISSUED}

    def print_text() -> None:
        for name, text in shown.items():
            print(f"{name}: {text}")

    print_object(shown, options, print_text)


def _add(
    verbs: Any, name: str, purpose: str, act: Callable[[KeyAdmin, argparse.Namespace], int | None]
) -> CommandParser:
    def run(options: argparse.Namespace) -> int | None:
        with opened_keys(options, creates_data_dir=act is create) as admin:
            return act(admin, options)

    parser = add_verb(verbs, name, purpose, run)
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="the data directory of a stopped server, the first one if log.dirs has several",
    )
    add_http_options(parser)
    add_output(parser)
    return parser
