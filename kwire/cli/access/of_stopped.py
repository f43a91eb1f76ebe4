"""The users, ACLs and keys of a stopped server, in the metadata store of its data directory.

The directory's lock is held, so no server can start meanwhile. The metadata store is opened as a server opens it.
"""

import asyncio
import os
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from kwire.access.acl import Acl, AclFilter
from kwire.access.audit.pending import PendingAudit
from kwire.access.authorizer import AclAuthorizer
from kwire.access.secrets.node_keys import KEY_FILE_NAME
from kwire.access.users.users import UserExists, UserNotFound, Users
from kwire.broker.topics.adoption import DirectoryLocks
from kwire.clock import SystemClock
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config.settings.access import PASSWORD_LENGTH_MIN_DEFAULT
from kwire.metastore import EmbeddedMetaStore
from storage.data_directory.store import LOCK_NAME, make_data_dir
from storage.disk.files import Files
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME
from storage.errors import DataDirectoryLocked, JournalDamaged

T = TypeVar("T")

# What a data directory may contain that no server has used yet.
NAMES_IN_NEW_DIRECTORY = frozenset((LOCK_NAME, KEY_FILE_NAME, "lost+found"))


class StoppedServer:
    """The users and ACLs of one data directory. Use `opened`."""

    def __init__(self, metastore: EmbeddedMetaStore, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._audit = PendingAudit(metastore, SystemClock())
        self._users = Users(metastore, self._audit)
        self._authorizer = AclAuthorizer(metastore, audit=self._audit)

    @classmethod
    @contextmanager
    def opened(cls, data_dir: str, *, creates_data_dir: bool) -> Iterator[Self]:
        """Open a data directory, and create it if it does not exist and `creates_data_dir` is set.

        Raises ValueError if it is not the data directory of a stopped server, or StorageError.
        """
        with (
            opened_metastore(
                data_dir, creates_data_dir=creates_data_dir, option_of_running="--bootstrap-server"
            ) as metastore,
            asyncio.Runner() as runner,
        ):
            opened = cls(metastore, runner)
            try:
                yield opened
            finally:
                opened._users.close()

    def users(self) -> Mapping[str, Sequence[str]]:
        return {name: [one.mechanism for one in self._users.describe(name) or ()] for name in self._users.names()}

    def password_length_min(self) -> int:
        # The settings are not in the data directory.
        return PASSWORD_LENGTH_MIN_DEFAULT

    def create_user(self, name: str, password: str) -> None:
        try:
            self._run(self._users.create(name, password))
        except UserExists:
            raise ValueError(f"user {name} exists already: change its password with kwire user passwd") from None

    def set_password(self, name: str, password: str) -> None:
        with _missing_as_problem():
            self._run(self._users.set_password(name, password))

    def delete_user(self, name: str) -> None:
        with _missing_as_problem():
            self._run(self._users.delete(name))

    def acls(self, wanted: AclFilter) -> Sequence[Acl]:
        return [acl for acl in self._authorizer.acls() if wanted.matches(acl)]

    def add_acls(self, acls: Sequence[Acl]) -> None:
        self._run(self._authorizer.add(acls))

    def remove_acls(self, wanted: AclFilter) -> Sequence[Acl]:
        (removed,) = self._run(self._authorizer.remove([wanted]))
        return removed

    def _run(self, change: Coroutine[Any, Any, T]) -> T:
        try:
            return self._runner.run(change)
        finally:
            self._runner.run(self._audit.store())


@contextmanager
def opened_metastore(data_dir: str, *, creates_data_dir: bool, option_of_running: str) -> Iterator[EmbeddedMetaStore]:
    """Open the metadata store of a stopped server. `option_of_running` is the option to use if the server runs.

    Raises ValueError if it is not the data directory of a stopped server, or StorageError.
    """
    data_dir, files = os.path.abspath(data_dir), Files()
    _check(data_dir, creates_data_dir=creates_data_dir)
    is_new = not os.path.exists(data_dir)
    make_data_dir(data_dir, files)
    if is_new:
        print(f"kwire: created the data directory {data_dir}", file=sys.stderr)
    try:
        locked = DirectoryLocks([data_dir], files)
    except DataDirectoryLocked:
        raise ValueError(
            f"{data_dir} is in use, so the server is running: use {option_of_running}, or stop the server first"
        ) from None
    lanes = DiskLanes()
    try:
        metastore = _open_metastore(data_dir, files, lanes)
        try:
            yield metastore
        finally:
            metastore.close()
    finally:
        lanes.close()
        locked.release()


@contextmanager
def _missing_as_problem() -> Iterator[None]:
    try:
        yield
    except UserNotFound as missing:
        raise ValueError(f"user {missing} does not exist") from None


def _check(data_dir: str, *, creates_data_dir: bool) -> None:
    """Raise ValueError if the directory is not the first data directory of a server, nor a new one."""
    if not os.path.exists(data_dir):
        if not creates_data_dir:
            raise ValueError(f"{data_dir} does not exist")
        return
    if not os.path.isdir(data_dir):
        raise ValueError(f"{data_dir} is not a directory")
    names = set(os.listdir(data_dir))
    if not names & {JOURNAL_NAME, MIRROR_NAME} and (names - NAMES_IN_NEW_DIRECTORY or not creates_data_dir):
        # A second journal beside partitions would hide the first one, or a lost one, from the server.
        raise ValueError(
            f"{data_dir} has no {JOURNAL_NAME}, so it is not the data directory of a server, or not the first one of "
            "log.dirs"
        )
    owner = os.stat(data_dir).st_uid
    if os.geteuid() == 0 and owner != 0:
        raise ValueError(
            f"{data_dir} belongs to user {owner}, and files that root creates there could not be opened by the server: "
            "run this command as that user"
        )


def _open_metastore(data_dir: str, files: Files, lanes: DiskLanes) -> EmbeddedMetaStore:
    try:
        return EmbeddedMetaStore.open(data_dir, files, lanes)
    except JournalDamaged as error:
        raise JournalDamaged(
            f"the catalogue is damaged: {error}. Nothing was changed. See kwire log adopt --help"
        ) from error
