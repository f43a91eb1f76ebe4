"""kwire key: create, list, rotate and revoke API keys, on a running or a stopped server."""

import argparse
import json
from collections.abc import Callable
from typing import Any

from kwire.access.keys.keys import OVERLAP_SECONDS_DEFAULT
from kwire.cli.http_client import add_http
from kwire.cli.key_admin import KeyAdmin, KeyToCreate, opened_keys
from kwire.cli.subcommands import add_subcommand, print_rows, reports_failures
from storage.errors import StorageError

TABLE, JSON = "table", "json"
COLUMNS = ("id", "scope", "root", "alias_of", "status", "expires_at", "last_used_at", "description")
# The fields that `create` and `rotate` print.
ISSUED = ("id", "secret", "token")


def add(parser: argparse.ArgumentParser) -> None:
    subcommands = parser.add_subparsers(dest="subcommand", required=True, metavar="subcommand")
    create_ = _add(subcommands, "create", "create a key and print its secret, which is never shown again", create)
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
    _add(subcommands, "list", "list keys, without their secrets", list_keys)
    rotate_ = _add(subcommands, "rotate", "replace the secret of a key, and print the new one", rotate)
    rotate_.add_argument("id", metavar="ID")
    rotate_.add_argument(
        "--overlap",
        metavar="SECONDS",
        type=int,
        default=OVERLAP_SECONDS_DEFAULT,
        help=f"how long the old secret stays valid (default {OVERLAP_SECONDS_DEFAULT}); 0 ends it immediately",
    )
    revoke_ = _add(subcommands, "revoke", "revoke keys and their aliases; open connections are closed", revoke)
    revoke_.add_argument("ids", metavar="ID", nargs="+")


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


def rotate(admin: KeyAdmin, options: argparse.Namespace) -> None:
    _print_issued(admin.rotate(options.id, options.overlap), options)


def revoke(admin: KeyAdmin, options: argparse.Namespace) -> None:
    revoked = [key_id for given in options.ids for key_id in admin.revoke(given)]
    if options.json:
        print(json.dumps({"revoked": revoked}))
        return
    for key_id in revoked:
        print(f"revoked {key_id}")


def _print_issued(issued: dict[str, Any], options: argparse.Namespace) -> None:
    shown = {name: issued[name] for name in ISSUED}
    if options.json:
        print(json.dumps(shown))
        return
    for name, text in shown.items():
        print(f"{name}: {text}")


def _add(
    subcommands: Any, name: str, purpose: str, act: Callable[[KeyAdmin, argparse.Namespace], None]
) -> argparse.ArgumentParser:
    @reports_failures(OSError, ValueError, StorageError)
    def run(options: argparse.Namespace) -> None:
        options.json = options.output == JSON
        with opened_keys(options, creates_data_dir=act is create) as admin:
            act(admin, options)

    parser = add_subcommand(subcommands, name, purpose, run)
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="the data directory of a stopped server, the first one if log.dirs has several",
    )
    add_http(parser)
    # The default applies without --data-dir only.
    parser.set_defaults(http=None)
    parser.add_argument("-o", "--output", choices=(TABLE, JSON), default=TABLE, help=f"(default {TABLE})")
    return parser
