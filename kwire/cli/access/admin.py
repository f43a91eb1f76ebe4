"""Users and ACLs for the commands `user` and `acl`, on a stopped server (`--data-dir`) or a running one."""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from kwire.access.acl import Acl, AclFilter
from kwire.cli.connection.options import add_kafka_options, client_settings_of
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser, add_verb


class AccessAdmin(Protocol):
    """The users and ACLs of one server. If a change cannot be made, the methods raise ValueError with the reason."""

    def users(self) -> Mapping[str, Sequence[str]]:
        """Return the SASL mechanisms of every user, by name. The names are sorted."""
        ...

    def password_length_min(self) -> int:
        """Return the minimum length of new passwords in characters."""
        ...

    def create_user(self, name: str, password: str) -> None: ...

    def set_password(self, name: str, password: str) -> None: ...

    def delete_user(self, name: str) -> None: ...

    def acls(self, wanted: AclFilter) -> Sequence[Acl]:
        """Return the ACLs that match a filter. Raises AclsDisabled if the server has none."""
        ...

    def add_acls(self, acls: Sequence[Acl]) -> None: ...

    def remove_acls(self, wanted: AclFilter) -> Sequence[Acl]:
        """Remove the ACLs that match a filter, and return them."""
        ...


class AclsDisabled(ValueError):
    """The server has no authorizer, so it has no ACLs."""


Act = Callable[[AccessAdmin, argparse.Namespace], int | None]


def add_access_verb(verbs: Any, name: str, purpose: str, act: Act, *, creates_data_dir: bool = False) -> CommandParser:
    """Declare a verb that calls `act` with the users and ACLs that `--data-dir` or `--bootstrap-server` names.

    With `creates_data_dir`, the data directory need not exist.
    """

    def run(options: argparse.Namespace) -> int | None:
        with _opened(options, creates_data_dir=creates_data_dir) as admin:
            return act(admin, options)

    parser = add_verb(verbs, name, purpose, run)
    parser.add_argument(
        "--data-dir",
        metavar="DIR",
        help="the data directory of a stopped server, the first one if log.dirs has several",
    )
    add_kafka_options(parser)
    add_output(parser)
    return parser


@contextmanager
def _opened(options: argparse.Namespace, *, creates_data_dir: bool) -> Iterator[AccessAdmin]:
    if options.data_dir is not None:
        from kwire.cli.access.of_stopped import StoppedServer

        named = (options.command_config, options.bootstrap_server, options.profile, options.user)
        if any(option is not None for option in named):
            raise UsageError("--data-dir is for a stopped server: it cannot be used with options of a running one")
        with StoppedServer.opened(options.data_dir, creates_data_dir=creates_data_dir) as stopped:
            yield stopped
        return
    from kwire.cli.access.of_running import RunningServer

    with RunningServer(client_settings_of(options)) as running:
        yield running
