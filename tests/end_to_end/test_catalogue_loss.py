"""Lost and damaged catalogues, partition folders and metadata on a real server: nothing is destroyed or hidden."""

import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic

from storage.disk.journal import decode_journal
from tests.support.cli import run_here
from tests.support.clients import read_topic
from tests.support.clients_raw import (
    RawConnection,
    batch,
    fetch_request,
    fetched,
    list_offsets_request,
    metadata_request,
    produce_request,
    produced,
)
from tests.support.server import KwireProcess, wait_until

StartKwire = Callable[..., KwireProcess]

KAFKA_STORAGE_ERROR = 56
LEADER_NOT_AVAILABLE = 5
FIRST_MARK = 2**20
COPIES = ("metastore.journal", "metastore.mirror")


def create(process: KwireProcess, name: str, partitions: int = 2) -> None:
    admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
    try:
        admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        admin.close()


def delete(process: KwireProcess, name: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=process.bootstrap)
    try:
        admin.delete_topics([name])
    finally:
        admin.close()


def produce(process: KwireProcess, topic: str, partition: int, *values: bytes) -> Any:
    with RawConnection(process.kafka_address) as connection:
        return produced(connection.call(produce_request(topic, batch(*values), partition=partition), 8))


def values_of(process: KwireProcess, topic: str) -> dict[int, list[bytes]]:
    found = read_topic(process.bootstrap, topic)
    return {partition: [record.value for record in records] for partition, records in found.items()}


def filled(start_kwire: StartKwire, **options: Any) -> KwireProcess:
    process = start_kwire(**options)
    create(process, "orders")
    for partition in range(2):
        assert produce(process, "orders", partition, b"first", b"second").error_code == 0
    return process


def refused(process: KwireProcess) -> str:
    """Start a server that must refuse; what it printed."""
    size = process.stderr_path.stat().st_size
    process.start()
    assert process.exit_code() == 1
    printed = process.stderr_path.read_bytes()[size:].decode()
    assert "Traceback" not in printed
    return printed


def logged(process: KwireProcess) -> str:
    return process.stderr_path.read_text()


def is_logged(process: KwireProcess, pattern: str) -> bool:
    return re.search(pattern, logged(process)) is not None


def files_of(data_dir: Path) -> dict[str, bytes]:
    """The segments of all partitions, wherever they are."""
    return {f"{path.parent.name}/{path.name}": path.read_bytes().rstrip(b"\0") for path in data_dir.rglob("*.log")}


EVERYTHING = {0: [b"first", b"second"], 1: [b"first", b"second"]}


@pytest.mark.parametrize("is_emptied", [False, True])
def test_a_lost_catalogue_destroys_nothing_and_is_rebuilt_from_the_folders(
    start_kwire: StartKwire, is_emptied: bool
) -> None:
    process = filled(start_kwire)
    process.stop()
    before = files_of(process.data_dir)
    for name in COPIES:
        path = process.data_dir / name
        if path.exists():
            path.write_bytes(b"") if is_emptied else path.unlink()
    for _ in range(2):
        printed = refused(process)
        assert "orders-0" in printed
        assert "orders-1" in printed
        assert f"kwire log adopt {process.data_dir}" in printed
        assert "--set kwire.start.empty=true" in printed
        assert files_of(process.data_dir) == before
    done = run_here("log", "adopt", process.data_dir)
    assert done.code == 0, done
    assert "topic orders is in the catalogue again: 2 partitions" in done.out
    assert run_here("log", "adopt", process.data_dir).out.startswith("nothing to do")
    process.restart()
    assert values_of(process, "orders") == EVERYTHING
    assert produce(process, "orders", 0, b"third").base_offset == 2
    process.stop()
    process.restart()
    assert len(values_of(process, "orders")[0]) == 3


def test_a_server_can_begin_anew_with_the_old_folders_set_aside(start_kwire: StartKwire) -> None:
    process = filled(start_kwire)
    process.kill()
    before = files_of(process.data_dir)
    for name in COPIES:
        (process.data_dir / name).write_bytes(b"damaged beyond repair")
    printed = refused(process)
    assert "the catalogue is damaged" in printed
    assert f"kwire log adopt {process.data_dir}" in printed
    process.settings["kwire.start.empty"] = "true"
    process.restart()
    assert files_of(process.data_dir) == before
    (aside,) = process.data_dir.glob("set-aside-*/orders-0")
    assert not (process.data_dir / "orders-0").exists()
    create(process, "orders")
    assert produce(process, "orders", 0, b"anew").base_offset == 0
    # Left in the configuration, the setting does nothing more.
    process.stop()
    process.restart()
    assert values_of(process, "orders")[0] == [b"anew"]
    assert len(list(process.data_dir.glob("set-aside-*/orders-0"))) == 1
    assert aside.is_dir()


def test_one_damaged_copy_of_the_catalogue_is_repaired_from_the_other(start_kwire: StartKwire) -> None:
    process = filled(start_kwire)
    for name in COPIES:
        process.stop()
        path = process.data_dir / name
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        process.restart()
        assert f"the catalogue was repaired: {path}" in logged(process)
        assert values_of(process, "orders") == EVERYTHING
        assert (process.data_dir / f"{name}.damaged").read_bytes() == data
    process.kill()
    first, second = (decode_journal(name, (process.data_dir / name).read_bytes())[0] for name in COPIES)
    assert first == second


def test_a_deletion_that_a_crash_interrupted_is_finished_because_the_catalogue_notes_it(
    start_kwire: StartKwire, tmp_path: Path
) -> None:
    process = filled(start_kwire)
    for partition in range(2):
        shutil.copytree(process.data_dir / f"orders-{partition}", tmp_path / f"orders-{partition}")
    delete(process, "orders")
    process.kill()

    def put_back() -> None:
        for partition in range(2):
            shutil.copytree(tmp_path / f"orders-{partition}", process.data_dir / f"orders-{partition}")

    # As if the renames had not reached the disk.
    put_back()
    process.restart()
    assert "removing leftover folders of deleted topics: orders-0, orders-1" in logged(process)
    wait_until(lambda: not list(process.data_dir.glob("orders-*")), "the folders are removed")
    # The note goes with a later change of topics; from then on such folders are somebody else's.
    create(process, "later")
    process.stop()
    put_back()
    assert "orders-0" in refused(process)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_lost_folder_takes_its_partition_offline_until_the_loss_is_accepted(
    start_kwire: StartKwire, is_clean: bool
) -> None:
    process = filled(start_kwire)
    process.stop() if is_clean else process.kill()
    shutil.rmtree(process.data_dir / "orders-0")
    process.restart()
    remedy = f"kwire log adopt {process.data_dir} --accept-loss orders-0"
    assert re.search(f"ERROR .*orders-0 is offline.*{re.escape(remedy)}", logged(process))
    check_offline(process, 0)
    assert "Traceback" not in logged(process)
    process.stop()
    done = run_here("log", "adopt", process.data_dir)
    assert done.code == 1
    assert remedy in done.errors
    done = run_here("log", "adopt", process.data_dir, "--accept-loss", "orders-1")
    assert done.code == 2
    assert "not lost" in done.errors
    done = run_here("log", "adopt", process.data_dir, "--accept-loss", "orders-0")
    assert done.code == 0
    assert f"orders-0 starts empty at offset {FIRST_MARK}" in done.out
    process.restart()
    assert produce(process, "orders", 0, b"anew").base_offset == FIRST_MARK
    assert produce(process, "orders", 1, b"third").base_offset == 2
    process.stop()
    process.restart()
    assert values_of(process, "orders") == {0: [b"anew"], 1: [b"first", b"second", b"third"]}


def test_lost_metadata_takes_a_partition_offline_and_adopt_repairs_it(start_kwire: StartKwire) -> None:
    process = start_kwire()
    create(process, "orders", len(METADATA_DAMAGE))
    for partition in range(len(METADATA_DAMAGE)):
        assert produce(process, "orders", partition, b"first", b"second").error_code == 0
    process.stop()
    for partition, damage in enumerate(METADATA_DAMAGE):
        damage(process.data_dir / f"orders-{partition}" / "partition.metadata")
    process.restart()
    offline = (0, 2, 3, 4)
    # It is reported before any client asks.
    for partition in offline:
        named = f"ERROR .*orders-{partition} is offline: partition.metadata .*kwire log adopt {process.data_dir}\n"
        wait_until(partial(is_logged, process, named), "the damage is reported")
    check_offline(process, *offline)
    assert "Traceback" not in logged(process)
    assert list(process.data_dir.glob("*.stale")) == []
    process.stop()
    done = run_here("log", "adopt", process.data_dir)
    assert done.code == 0
    assert done.out.count("partition.metadata was rewritten") == len(offline)
    process.restart()
    assert values_of(process, "orders") == {partition: [b"first", b"second"] for partition in range(5)}


def flip_topic_id(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-5] ^= 1  # still an id, of no topic
    path.write_bytes(data)


METADATA_DAMAGE: tuple[Callable[[Path], object], ...] = (
    Path.unlink,
    lambda path: None,
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"garbage" * 20),
    flip_topic_id,
)


def check_offline(process: KwireProcess, *offline: int) -> None:
    """These partitions are offline at every API, orders-1 is served."""
    with RawConnection(process.kafka_address) as connection:
        for partition in offline:
            answer = connection.call(produce_request("orders", batch(b"x"), partition=partition), 8)
            assert produced(answer).error_code == KAFKA_STORAGE_ERROR
            answer = connection.call(fetch_request("orders", 0, partition=partition), 11)
            assert fetched(answer).error_code == KAFKA_STORAGE_ERROR
            answer = connection.call(list_offsets_request("orders", -1, partition), 4)
            assert answer.topics[0].partitions[0].error_code == KAFKA_STORAGE_ERROR
        (topic,) = connection.call(metadata_request("orders"), 7).topics
        found = {one.partition_index: one for one in topic.partitions}
        for partition in offline:
            assert (found[partition].error_code, found[partition].leader_id) == (LEADER_NOT_AVAILABLE, -1)
            assert found[partition].offline_replicas == found[partition].replica_nodes
        assert (found[1].error_code, found[1].offline_replicas) == (0, [])
        assert fetched(connection.call(fetch_request("orders", 0, partition=1), 11)).error_code == 0
    with urllib.request.urlopen(f"{process.http_url}/metrics") as answer:
        assert f"kwire_storage_offline_partitions {len(offline)}.0" in answer.read().decode()
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(f"{process.http_url}/topics/orders/partitions/0/offsets")
    with raised.value as error:
        assert error.code == 503


def test_adopt_refuses_a_running_server_and_partitions_that_do_not_exist(start_kwire: StartKwire) -> None:
    process = filled(start_kwire)
    done = run_here("log", "adopt", process.data_dir)
    assert done.code == 2
    assert "stop the server first" in done.errors
    process.stop()
    done = run_here("log", "adopt", process.data_dir, "--accept-loss", "other-0")
    assert done.code == 2
    assert "no such partition" in done.errors
    done = run_here("log", "adopt", process.data_dir)
    assert (done.code, done.out) == (0, "nothing to do: the catalogue and the folders agree\n")
