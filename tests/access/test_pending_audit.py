"""Changes of a stopped server wait in the metadata store until the next start has written them to the audit log."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kwire.access.audit import pending
from kwire.access.audit.entries import USER
from kwire.access.audit.pending import KEY_PREFIX, PendingAudit, record_pending
from kwire.access.audit.queue import AuditQueue
from kwire.concurrency.disk_lanes import DiskLanes
from kwire.config.access import AuditConfig
from kwire.metastore import EmbeddedMetaStore
from storage.disk.journal import Journal
from tests.support.batches import UnsyncedFiles
from tests.support.clock import ManualClock
from tests.support.node import in_loop

ALL = AuditConfig(has_webhooks=True, has_changes=True, has_refusals=True, retention_ms=-1)


@pytest.fixture
def metastore(tmp_path: Path) -> Iterator[EmbeddedMetaStore]:
    made = EmbeddedMetaStore(Journal.open(str(tmp_path / "journal"), UnsyncedFiles()), DiskLanes().metadata)
    yield made
    made.close()


def waiting(metastore: EmbeddedMetaStore) -> int:
    return sum(1 for _ in metastore.entries(KEY_PREFIX))


async def change(metastore: EmbeddedMetaStore, *names: str) -> None:
    audit = PendingAudit(metastore, ManualClock())
    for name in names:
        audit.changed("user.created", USER, name, {"mechanisms": ["SCRAM-SHA-256"]})
    await audit.store()
    await audit.store()


@in_loop
async def test_entries_are_recorded_in_order_and_then_removed(metastore: EmbeddedMetaStore) -> None:
    await change(metastore, "b", "a")
    await change(metastore, "c")
    queue = AuditQueue(ALL, ManualClock())
    taken: list[tuple[str, dict[str, object]]] = []

    async def written() -> None:
        # They are removed only after they are durable.
        assert waiting(metastore) == 3
        taken.extend((one.type, msgspec.json.decode(one.data)) for one in queue.take(100, 1 << 20))

    await record_pending(metastore, queue, written)
    assert waiting(metastore) == 0
    assert [(what, entry["resource"]) for what, entry in taken] == [
        ("user.created", {"type": "USER", "name": name}) for name in ("b", "a", "c")
    ]
    entry = taken[0][1]
    assert (entry["port"], entry["outcome"], entry["mechanisms"]) == ("offline", "success", ["SCRAM-SHA-256"])
    assert str(entry["principal"]).startswith("LocalUser:")
    assert str(entry["changedAt"]).endswith("Z")


@in_loop
async def test_many_entries_are_written_in_chunks(
    metastore: EmbeddedMetaStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending, "ENTRIES_PER_CHUNK", 2)
    await change(metastore, "a", "b", "c", "d", "e")
    queue = AuditQueue(ALL, ManualClock())
    sizes: list[int] = []

    async def written() -> None:
        sizes.append(len(queue.take(100, 1 << 20)))

    await record_pending(metastore, queue, written)
    assert sizes == [2, 2, 1]


@in_loop
async def test_a_server_that_records_no_changes_removes_them(metastore: EmbeddedMetaStore) -> None:
    await change(metastore, "a")

    async def written() -> None:
        raise AssertionError("nothing is written")

    await record_pending(metastore, AuditQueue(ALL._replace(has_changes=False), ManualClock()), written)
    assert waiting(metastore) == 0


@in_loop
async def test_the_number_of_entries_is_bounded(
    metastore: EmbeddedMetaStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pending, "PENDING_MAX", 3)
    await change(metastore, "a", "b")
    await change(metastore, "c", "d", "e")
    assert waiting(metastore) == 3
    assert "2 changes are not recorded in the audit log" in capsys.readouterr().err
