"""kwire backup verify and restore: sound backups are restored, all others are refused with a reason."""

import asyncio
import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kwire.access.secrets.key_file import create_key_file
from kwire.cli.backup.format import CHECKSUMS_NAME, MANIFEST_NAME, BackupFile, read_backup, write_end
from kwire.cli.backup.restoration import EPOCHS_SKIPPED, PRODUCER_IDS_SKIPPED
from kwire.metastore import Change
from storage.batch.record_batch import check_batch
from storage.disk.files import Files
from storage.disk.journal import decode_journal
from tests.end_to_end.seeds import announced_seed
from tests.support.backups import new_builder, write_backup
from tests.support.batches import make_batch, read_all
from tests.support.cli import run_here
from tests.support.effort import repetitions
from tests.support.node import CLUSTER_ID, QuietNode
from tests.support.partition_log import log_of

DAMAGES = repetitions(quick=60, full=400)
RECORDS = 40
NODE: dict[str, Any] = {"cluster_id": CLUSTER_ID, "starts": 3, "directory_id": "00"}


async def make_backup(directory: Path, *, has_secrets: bool = False) -> Path:
    with QuietNode(directory / "old") as node:
        changes = [Change("node", NODE, 0), Change("producer_ids", {"next": 5000}, 0)]
        if has_secrets:
            changes.append(Change("webhooks/w1", {"encrypted": {"url": "1:ab:cd"}}, 0))
        await node.metastore.commit(changes)
        topic = await node.create("orders", 2)
        for partition in topic.partitions:
            for at in range(RECORDS):
                batch = make_batch(1, value=b"%d" % at, timestamp_ms=0)
                partition.append(batch, check_batch(batch))
                if at == RECORDS // 2:
                    log_of(partition).roll(0)
        return write_backup(await new_builder(node).build(), directory / "backup")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(make_backup(tmp_path_factory.mktemp("backup")))


@pytest.fixture
def backup(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "backup"))


def entries_of(data_dir: Path) -> dict[str, Any]:
    path = data_dir / "metastore.journal"
    entries: dict[str, Any] = {}
    for record in decode_journal(str(path), path.read_bytes())[0]:
        entries.update(json.loads(record)["set"])
    return entries


def refused(backup: Path, tmp_path: Path, *words: str, code: int = 1) -> None:
    """Both verbs refuse this backup, say why, and restore leaves nothing behind."""
    verified = run_here("backup", "verify", backup)
    assert verified.code == code, verified.out
    restored = run_here("backup", "restore", backup, tmp_path / "new")
    assert restored.code == code, restored.out
    for word in words:
        assert word in verified.errors
        assert word in restored.errors
    assert not (tmp_path / "new").exists()


def test_a_sound_backup_is_verified_and_restored(backup: Path, tmp_path: Path) -> None:
    assert run_here("backup", "verify", backup).out.endswith("the backup is sound\n")
    facts = json.loads(run_here("backup", "verify", backup, "-o", "json").out)
    assert (facts["is_sound"], facts["topics"], facts["partitions"]) == (True, 1, 2)
    done = run_here("backup", "restore", backup, tmp_path / "new", tmp_path / "more")
    assert done.code == 0, done.errors
    assert "cluster id test-cluster" in done.out
    assert "kwire serve --data-dir" in done.out
    with QuietNode(tmp_path / "new", more_dirs=[tmp_path / "more"]) as node:
        topic = node.topics.get("orders")
        assert topic is not None
        for partition in topic.partitions:
            assert len(read_all(log_of(partition))) == RECORDS
    # Both directories got a log.
    assert [len(list(one.glob("orders-*"))) for one in (tmp_path / "new", tmp_path / "more")] == [1, 1]


def test_standard_tools_can_check_the_checksums(backup: Path) -> None:
    for line in (backup / CHECKSUMS_NAME).read_text().splitlines():
        digest, _, path = line.partition("  ")
        assert hashlib.sha256((backup / path).read_bytes()).hexdigest() == digest


def test_the_restored_node_skips_epochs_and_producer_ids(backup: Path, tmp_path: Path) -> None:
    assert run_here("backup", "restore", backup, tmp_path / "new").code == 0
    entries = entries_of(tmp_path / "new")
    assert entries["node"]["starts"] == NODE["starts"] + EPOCHS_SKIPPED
    assert entries["node"]["cluster_id"] == CLUSTER_ID
    assert entries["node"]["directory_id"] != NODE["directory_id"]
    assert entries["producer_ids"]["next"] == 5000 + PRODUCER_IDS_SKIPPED
    assert (tmp_path / "new" / "metastore.mirror").read_bytes() == (tmp_path / "new" / "metastore.journal").read_bytes()


def test_the_cluster_id_can_be_chosen(backup: Path, tmp_path: Path) -> None:
    wanted = "AAAAAAAAAAAAAAAAAAAAAA"
    assert run_here("backup", "restore", backup, tmp_path / "a", "--cluster-id", wanted).code == 0
    assert entries_of(tmp_path / "a")["node"]["cluster_id"] == wanted
    assert run_here("backup", "restore", backup, tmp_path / "b", "--new-cluster-id").code == 0
    assert len(entries_of(tmp_path / "b")["node"]["cluster_id"]) == len(wanted)
    assert run_here("backup", "restore", backup, tmp_path / "c", "--cluster-id", "short").code == 2


def test_a_changed_byte_anywhere_is_refused(sound: Path, tmp_path: Path) -> None:
    chance = random.Random(announced_seed())
    paths = sorted(path for path in sound.rglob("*") if path.is_file())
    for number in range(DAMAGES):
        backup = Path(shutil.copytree(sound, tmp_path / f"backup-{number}"))
        path = backup / chance.choice(paths).relative_to(sound)
        data = bytearray(path.read_bytes())
        match chance.choice(("flip", "cut", "add", "remove")) if data else "remove":
            case "flip":
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case "cut":
                del data[chance.randrange(len(data)) :]
            case "add":
                data += bytes([chance.randrange(256)])
            case "remove":
                path.unlink()
        if path.exists():
            path.write_bytes(data)
        refused(backup, tmp_path)
        shutil.rmtree(backup)


def test_the_reason_is_named(backup: Path, tmp_path: Path) -> None:
    log = next((backup / "logs" / "orders-0").glob("*.log"))
    data = bytearray(log.read_bytes())
    data[5] ^= 1
    log.write_bytes(data)
    refused(backup, tmp_path, str(log), "is damaged")
    log.unlink()
    refused(backup, tmp_path, str(log), "is missing")


def test_a_backup_that_was_not_finished_is_refused(backup: Path, tmp_path: Path) -> None:
    (backup / CHECKSUMS_NAME).unlink()
    refused(backup, tmp_path, "is not complete", "make it again")


def test_folders_that_are_no_backups_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("x")
    refused(tmp_path / "other", tmp_path, "is not a backup", code=2)
    refused(tmp_path / "nothing", tmp_path, "is not a folder", code=2)


def rewritten(backup: Path, **changes: Any) -> None:
    """Change the manifest, with checksums that fit."""
    manifest, checksums = read_backup(backup)
    for name, value in changes.items():
        setattr(manifest, name, value)
    (backup / MANIFEST_NAME).unlink()
    (backup / CHECKSUMS_NAME).unlink()
    write_end(backup, manifest, {one.path: checksums.get(one.path, "0" * 64) for one in manifest.files})


def test_backups_of_other_programs_and_later_versions_are_refused(backup: Path, tmp_path: Path) -> None:
    rewritten(backup, version=2)
    refused(backup, tmp_path, "version 2", "use a newer kwire")
    rewritten_format = json.loads((backup / MANIFEST_NAME).read_text()) | {"format": "tar"}
    raw = json.dumps(rewritten_format).encode()
    (backup / MANIFEST_NAME).write_bytes(raw)
    sums = (backup / CHECKSUMS_NAME).read_text().splitlines()[:-1]
    (backup / CHECKSUMS_NAME).write_text("\n".join([*sums, f"{hashlib.sha256(raw).hexdigest()}  {MANIFEST_NAME}", ""]))
    refused(backup, tmp_path, "is not the manifest of a kwire backup")


@pytest.mark.parametrize(
    "path", ["../outside", "/etc/passwd", "logs/orders-0/../../x", "logs/orders-0/.hidden", "logs/a"]
)
def test_paths_that_lead_elsewhere_are_refused(backup: Path, tmp_path: Path, path: str) -> None:
    manifest, _ = read_backup(backup)
    rewritten(backup, files=[*manifest.files, BackupFile(path, 1)])
    refused(backup, tmp_path, "names a file that no backup has")


def test_a_file_that_does_not_belong_to_the_backup_is_reported(backup: Path) -> None:
    (backup / "logs" / "notes.txt").write_text("x")
    verified = run_here("backup", "verify", backup)
    assert verified.code == 1
    assert "does not belong to the backup" in verified.errors


def test_a_directory_that_is_not_empty_is_left_alone(backup: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("kept")
    done = run_here("backup", "restore", backup, tmp_path / "new", tmp_path / "used")
    assert done.code == 2
    assert "is not empty" in done.errors
    assert (tmp_path / "used" / "file").read_text() == "kept"
    assert not (tmp_path / "new").exists()
    assert "twice" in run_here("backup", "restore", backup, tmp_path / "new", tmp_path / "new").errors


def test_stored_secrets_need_their_key(tmp_path: Path) -> None:
    backup = asyncio.run(make_backup(tmp_path, has_secrets=True))
    without = run_here("backup", "restore", backup, tmp_path / "a")
    assert without.code == 0
    assert "copy secrets.key" in without.errors
    key = tmp_path / "key"
    create_key_file(str(key), Files())
    done = run_here("backup", "restore", backup, tmp_path / "b", "--secrets-key", key)
    assert done.code == 0
    assert done.errors == ""
    restored = tmp_path / "b" / "secrets.key"
    assert restored.read_bytes() == key.read_bytes()
    assert restored.stat().st_mode & 0o777 == 0o600
    (tmp_path / "no key").write_text("x")
    assert run_here("backup", "restore", backup, tmp_path / "c", "--secrets-key", tmp_path / "no key").code == 1


def test_partitions_that_were_offline_are_reported_again(backup: Path, tmp_path: Path) -> None:
    manifest, _ = read_backup(backup)
    kept = [one for one in manifest.files if not one.path.startswith("logs/orders-1/")]
    rewritten(backup, files=kept, offline={"orders-1": "its folder is missing"})
    shutil.rmtree(backup / "logs" / "orders-1")
    assert run_here("backup", "restore", backup, tmp_path / "new").code == 0
    assert "orders-1" in (tmp_path / "new" / "folders").read_text()
