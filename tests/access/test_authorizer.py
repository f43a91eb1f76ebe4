"""The authorizer: its ACLs are durable, a failed change changes nothing, decisions are cached and never stale."""

import asyncio
import errno
from collections.abc import Sequence
from pathlib import Path

import pytest

from kwire.access import authorizer as module
from kwire.access.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from kwire.access.acl_checks import new_acl
from kwire.access.authorizer import AclAuthorizer, OpenAuthorizer, authorizer_of
from kwire.access.principal import ANONYMOUS, Principal, parse_principal
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config import load
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Condition, Conflict, EmbeddedMetaStore
from kwire.metastore.interface import ABSENT
from storage.disk.files import Files
from storage.disk.journal import Journal
from tests.support.batches import UnsyncedFiles
from tests.support.faulty_files import FaultyFiles
from tests.support.node import in_loop

ALICE, ROOT = Principal("User", "alice"), Principal("User", "root")
HERE = "10.0.0.1"
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC = ResourceType.TOPIC
ALL = AclFilter()


class SlowStore(EmbeddedMetaStore):
    """A commit waits until the test lets it go on."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        super().__init__(Journal.open(str(path), files or UnsyncedFiles()), DiskLanes().metadata)
        self.gate = asyncio.Event()
        self.gate.set()
        self.conflicts = 0
        self.commits = 0

    async def commit(self, changes: Sequence[Change], conditions: Sequence[Condition] = ()) -> int:
        await self.gate.wait()
        if self.conflicts:
            self.conflicts -= 1
            raise Conflict(changes[0].key)
        self.commits += 1
        return await super().commit(changes, conditions)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


def acl(
    name: str,
    operation: Operation = READ,
    permission: Permission = Permission.ALLOW,
    pattern_type: PatternType = PatternType.LITERAL,
) -> Acl:
    return Acl(TOPIC, name, pattern_type, ALICE, "*", operation, permission)


def may_read(authorizer: AclAuthorizer, name: str = "t") -> bool:
    return authorizer.access(ALICE, HERE).allows(READ, TOPIC, name)


@in_loop
async def test_acls_survive_a_restart(path: Path) -> None:
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    given = [
        acl("t"),
        acl("t", WRITE, Permission.DENY),
        acl("p", Operation.ALL, pattern_type=PatternType.PREFIXED),
        Acl(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, ROOT, HERE, Operation.ALTER, Permission.ALLOW),
        Acl(
            ResourceType.USER, "ü:\0\n", PatternType.LITERAL, Principal("User", "CN=a:b"), "::1", READ, Permission.ALLOW
        ),
    ]
    await authorizer.add(given)
    assert await authorizer.remove([AclFilter(operation=WRITE)]) == [[given[1]]]
    store.close()
    again = SlowStore(path)
    loaded = AclAuthorizer(again)
    assert sorted(loaded.acls()) == sorted(authorizer.acls()) == sorted([given[0], *given[2:]])
    assert may_read(loaded)
    # What was loaded can be removed.
    assert [len(one) for one in await loaded.remove([ALL])] == [4]
    again.close()
    last = SlowStore(path)
    assert len(AclAuthorizer(last).acls()) == 0
    last.close()


@in_loop
async def test_acls_that_differ_have_keys_that_differ(path: Path) -> None:
    """Also where one field ends with what another one begins with."""
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    twins = [
        Acl(TOPIC, "a\0003\0User:b", PatternType.LITERAL, ALICE, "*", READ, Permission.ALLOW),
        Acl(TOPIC, "a", PatternType.LITERAL, Principal("User", "b\0003\0User:alice"), "*", READ, Permission.ALLOW),
    ]
    await authorizer.add(twins)
    assert len(list(store.entries("acl/"))) == len(twins)
    store.close()


@in_loop
async def test_acl_that_cannot_be_read_stops_the_start(path: Path) -> None:
    """It may be one that denies something."""
    store = SlowStore(path)
    await store.commit([Change("acl/1", {"resource_type": "TOPIC", "name": "t", "operation": "FLY"}, ABSENT)])
    with pytest.raises(ValueError, match="the ACL acl/1 in the metadata store cannot be read"):
        AclAuthorizer(store)
    store.close()


@in_loop
async def test_change_that_cannot_be_written_changes_nothing(path: Path) -> None:
    files = FaultyFiles()
    store = SlowStore(path, files)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl("t")])
    before, revision = list(authorizer.acls()), authorizer.revision
    files.break_down("write", errno.ENOSPC)
    files.break_down("pwrite", errno.ENOSPC)
    files.break_down("pwritev", errno.ENOSPC)
    with pytest.raises(KafkaError) as failed:
        await authorizer.add([acl("u")])
    assert failed.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(KafkaError) as failed:
        await authorizer.remove([ALL])
    assert failed.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    files.repair()
    store.conflicts = 2
    with pytest.raises(KafkaError) as failed:
        await authorizer.add([acl("u")])
    assert failed.value.code == ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(KafkaError):
        await authorizer.remove([ALL])
    assert (list(authorizer.acls()), authorizer.revision) == (before, revision)
    assert may_read(authorizer)
    assert not may_read(authorizer, "u")
    # The next change succeeds.
    await authorizer.add([acl("u")])
    assert may_read(authorizer, "u")
    store.close()


@in_loop
async def test_change_applies_when_it_is_durable_and_not_before(path: Path) -> None:
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    store.gate.clear()
    adding = asyncio.ensure_future(authorizer.add([acl("t")]))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not may_read(authorizer)
    store.gate.set()
    await adding
    assert may_read(authorizer)
    store.close()


@in_loop
async def test_change_of_a_client_that_goes_away_is_complete(path: Path) -> None:
    """Else it would be on disk, and in force only after the next start."""
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    store.gate.clear()
    adding = asyncio.ensure_future(authorizer.add([acl("t")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    store.gate.set()
    # Changes run one after the other, so the abandoned one is over before this one.
    await authorizer.remove([])
    assert list(authorizer.acls()) == [acl("t")]
    assert may_read(authorizer)
    assert len(list(store.entries("acl/"))) == 1
    store.close()


@in_loop
async def test_changes_at_the_same_time_all_happen(path: Path) -> None:
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl(f"old{number}") for number in range(30)])
    await asyncio.gather(
        *(authorizer.add([acl("shared"), acl(f"new{number}")]) for number in range(20)),
        *(authorizer.remove([AclFilter(name=f"old{number}"), AclFilter(name="old0")]) for number in range(30)),
    )
    expected = sorted([acl("shared"), *(acl(f"new{number}") for number in range(20))])
    assert sorted(authorizer.acls()) == expected
    store.close()
    again = SlowStore(path)
    assert sorted(AclAuthorizer(again).acls()) == expected
    again.close()


@in_loop
async def test_acls_that_exist_are_not_written_again(path: Path) -> None:
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl("t"), acl("t")])
    revision = authorizer.revision
    await authorizer.add([acl("t")])
    await authorizer.remove([AclFilter(name="missing")])
    assert (store.commits, authorizer.revision) == (1, revision)
    store.close()


@in_loop
async def test_many_acls_are_changed_in_several_commits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHANGES_PER_COMMIT", 7)
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl(f"t{number}") for number in range(30)])
    assert (store.commits, len(authorizer.acls())) == (5, 30)
    # One commit fails: what came before it stays removed, in memory and in the store.
    removing = asyncio.ensure_future(authorizer.remove([ALL]))
    while len(authorizer.acls()) == 30:
        await asyncio.sleep(0)
    store.conflicts = 1
    with pytest.raises(KafkaError):
        await removing
    left = len(authorizer.acls())
    assert left in (9, 16, 23)
    assert len(list(store.entries("acl/"))) == left
    store.close()


@in_loop
async def test_number_of_acls_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACLS_MAX", 10)
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl(f"t{number}") for number in range(10)])
    with pytest.raises(KafkaError, match="There are 10 ACLs, and at most 10 are allowed") as refused:
        await authorizer.add([acl("one more")])
    assert refused.value.code == ErrorCode.POLICY_VIOLATION
    # Those that exist take no place.
    await authorizer.add([acl("t0"), acl("t1")])
    store.close()


@in_loop
async def test_removals_are_bounded_and_all_or_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMOVED_MAX", 5)
    monkeypatch.setattr(module, "SCANS_MAX", 3)
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl(f"t{number}") for number in range(6)])
    for filters in ([ALL], [AclFilter(name="missing")] * 4):
        with pytest.raises(KafkaError) as refused:
            await authorizer.remove(filters)
        assert refused.value.code == ErrorCode.POLICY_VIOLATION
        assert len(authorizer.acls()) == 6
    exact = [
        AclFilter(TOPIC, f"t{number}", PatternType.LITERAL, "User:alice", "*", READ, Permission.ALLOW)
        for number in range(5)
    ]
    assert [len(one) for one in await authorizer.remove(exact)] == [1] * 5
    store.close()


@in_loop
async def test_other_work_runs_while_acls_are_searched(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACLS_PER_CHUNK", 10)
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl(f"t{number}") for number in range(200)])
    finding = asyncio.ensure_future(authorizer.find(AclFilter(principal="User:alice")))
    turns = 0
    while not finding.done():
        await asyncio.sleep(0)
        turns += 1
        if turns == 5:
            # A change in between does no harm.
            authorizer.acls().add(acl("another"))
    assert turns >= 200 // 10
    assert len(await finding) == 200
    store.close()


# --- decisions


@in_loop
async def test_cached_decisions_are_never_stale(path: Path) -> None:
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    access = authorizer.access(ALICE, HERE)
    steps = [
        (authorizer.add, [acl("t")], True, False),
        (authorizer.add, [acl("t", Operation.ALL, Permission.DENY)], False, False),
        (authorizer.remove, [AclFilter(permission=Permission.DENY)], True, False),
        (authorizer.add, [acl("w", WRITE)], True, True),
        (authorizer.remove, [ALL], False, False),
    ]
    revision = access.revision
    for change, argument, reads, writes_any in steps:
        await change(argument)  # type: ignore[operator]
        assert access.revision > revision
        revision = access.revision
        for _ in range(2):
            assert access.allows(READ, TOPIC, "t") is reads
            assert access.allows_any(WRITE, TOPIC) is writes_any
            assert bool(access.operations(TOPIC, "t") & 1 << DESCRIBE) is reads
    store.close()


@in_loop
async def test_cache_is_bounded_in_number_and_in_length(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 50)
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl("t", pattern_type=PatternType.PREFIXED)])
    access = authorizer.access(ALICE, HERE)
    for number in range(200):
        assert access.allows(READ, TOPIC, f"t{number}")
        assert len(authorizer._decisions) <= 50
    assert authorizer._decisions
    authorizer._decisions.clear()
    assert access.allows(READ, TOPIC, "t" * 30_000)
    assert not authorizer._decisions
    store.close()


@in_loop
async def test_any_resource_is_decided_once_per_revision(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    await authorizer.add([acl("t", WRITE)])
    asked = 0
    really = authorizer.acls().allows_any

    def counted(*question: object) -> bool:
        nonlocal asked
        asked += 1
        return really(*question)  # type: ignore[arg-type]

    monkeypatch.setattr(authorizer.acls(), "allows_any", counted)
    access = authorizer.access(ALICE, HERE)
    assert all(access.allows_any(WRITE, TOPIC) for _ in range(10))
    assert asked == 1
    await authorizer.add([acl("u")])
    assert access.allows_any(WRITE, TOPIC)
    assert asked == 2
    store.close()


@in_loop
async def test_super_users_may_do_everything(path: Path) -> None:
    store = SlowStore(path)
    authorizer = AclAuthorizer(store, [ROOT])
    await authorizer.add([Acl(TOPIC, "*", PatternType.LITERAL, ROOT, "*", Operation.ALL, Permission.DENY)])
    access = authorizer.access(ROOT, HERE)
    assert access.is_unrestricted
    assert (access.principal, access.host) == (ROOT, HERE)
    for one in (access.allows, lambda *question: authorizer.is_allowed(ROOT, HERE, *question)):
        assert one(READ, TOPIC, "t")
    assert access.allows_any(WRITE, TOPIC)
    assert authorizer.is_any_allowed(ROOT, HERE, WRITE, TOPIC)
    # A principal of another type with the same name is somebody else.
    assert not authorizer.access(Principal("Group", "root"), HERE).allows(READ, TOPIC, "t")
    assert not authorizer.access(ALICE, HERE).is_unrestricted
    store.close()


@in_loop
async def test_resources_without_acls_are_open_if_so_configured(path: Path) -> None:
    store = SlowStore(path)
    strict, open_by_default = AclAuthorizer(store), AclAuthorizer(store, is_default_allowed=True)
    for authorizer, expected in ((strict, False), (open_by_default, True)):
        assert may_read(authorizer) is expected
        assert authorizer.access(ALICE, HERE).allows_any(WRITE, TOPIC) is expected
    await open_by_default.add([acl("t", WRITE)])
    assert not may_read(open_by_default, "t")
    assert may_read(open_by_default, "u")
    await open_by_default.add([acl("*", WRITE, Permission.DENY)])
    assert not may_read(open_by_default, "u")
    assert not open_by_default.access(ALICE, HERE).allows_any(WRITE, TOPIC)
    store.close()


@in_loop
async def test_hosts_are_compared_in_one_form(path: Path) -> None:
    store = SlowStore(path)
    authorizer = AclAuthorizer(store)
    for host, name in (("0:0:0:0:0:0:0:1", "six"), ("127.0.0.1", "four"), ("FE80::0:1", "local")):
        await authorizer.add(
            [new_acl(TOPIC, name, PatternType.LITERAL, "User:alice", host, Operation.ALL, Permission.ALLOW)]
        )
    for host, name in (("::1", "six"), ("::ffff:127.0.0.1", "four"), ("127.0.0.1", "four"), ("fe80::1%eth0", "local")):
        names = [one for one in ("six", "four", "local") if authorizer.access(ALICE, host).allows(READ, TOPIC, one)]
        assert names == [name]
    store.close()


@in_loop
async def test_authorizer_is_the_configured_one(tmp_path: Path) -> None:
    def configured(*settings: str) -> object:
        return authorizer_of(load(data_dir=str(tmp_path), settings=settings).access, store)

    store = SlowStore(tmp_path / "journal")
    assert isinstance(configured(), OpenAuthorizer)
    assert configured().access(ANONYMOUS, HERE).is_unrestricted  # type: ignore[attr-defined]
    for settings in (
        ["kwire.authorizer=acl"],
        ["authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"],
    ):
        made = configured(*settings, "super.users=User:root; User:CN=x,O=y", "allow.everyone.if.no.acl.found=true")
        assert isinstance(made, AclAuthorizer)
        assert made.super_users == {ROOT, parse_principal("User:CN=x,O=y")}
        assert made.is_default_allowed
    store.close()
