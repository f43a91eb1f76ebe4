"""kwire log: the real program on directories of real servers, and on broken ones."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.batch.format import GZIP
from storage.batch.record_batch import Record, build_batch, check_batch
from storage.log.log import Log
from storage.log.settings import LogSettings
from tests.support.batches import NOW_MS, UnsyncedFiles, run_now
from tests.support.cli import COMMAND_TIMEOUT_S, Done, interruptible, run_here, run_program
from tests.support.clients import produce_values, unique_name
from tests.support.server import KwireProcess, kwire_command, wait_until
from tests.support.transactional import TransactionalProducer

METADATA = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"


def run(*arguments: str | Path) -> Done:
    return run_here("log", *arguments)


def printed(*arguments: str | Path, code: int = 0) -> str:
    return output_of(run(*arguments), code)


def output_of(done: Done, code: int = 0) -> str:
    assert done.code == code, done.out + done.errors
    assert "Traceback" not in done.errors
    return done.out


def make_partition(data_dir: Path, folder: str, batches: list[bytearray], *, is_closed: bool = True) -> Path:
    directory = data_dir / folder
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_bytes(METADATA)
    files = UnsyncedFiles()
    log = Log(
        str(directory), files, run_now, LogSettings(segment_bytes=2000, index_interval_bytes=100), files.boot_id()
    )
    for batch in batches:
        log.append(memoryview(batch), check_batch(memoryview(batch)), 0, NOW_MS)
    if is_closed:
        log.close()
    return directory


def plain_batches(count: int) -> list[bytearray]:
    return [build_batch([Record(b"key", b"value %d" % number, NOW_MS)]) for number in range(count)]


def change(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0xFF]))


# --- verify


def test_the_directory_of_a_stopped_server_is_sound(start_kwire: Callable[..., KwireProcess]) -> None:
    server = start_kwire()
    name = unique_name("verify")
    produce_values(server.bootstrap, name, [b"%d" % number for number in range(100)], partition=0)
    refused = run_program("log", "verify", server.data_dir)
    assert refused.code == 2
    assert "in use by a running server" in refused.errors
    assert "--live" in refused.errors
    assert "Traceback" not in refused.errors
    output_of(run_program("log", "verify", server.data_dir, "--live"))
    assert server.stop() == 0
    report = json.loads(printed("verify", server.data_dir, "--json"))
    assert report["is_sound"]
    assert report["findings"] == []
    (tally,) = [one for one in report["topics"] if one["topic"] == name]
    assert (tally["partitions"], tally["records"]) == (1, 100)
    text = printed("verify", server.data_dir)
    assert re.search(rf"^{name} +1 +1 +\d+ +100 ", text, re.MULTILINE)
    assert text.rstrip().endswith(": sound")


def test_the_directory_of_a_killed_server_is_sound(start_kwire: Callable[..., KwireProcess]) -> None:
    server = start_kwire()
    produce_values(server.bootstrap, unique_name("verify"), [b"x" * 1000] * 200)
    server.kill()
    report = json.loads(printed("verify", server.data_dir, "--json"))
    assert report["is_sound"], report
    # And nothing was changed by looking: the server starts again and serves.
    assert server.restart() > 0


def test_damage_is_named_with_path_position_and_offset(tmp_path: Path) -> None:
    folder = make_partition(tmp_path, "orders-0", plain_batches(60))
    make_partition(tmp_path, "other-3", plain_batches(5))
    path = sorted(folder.glob("*.log"))[1]
    change(path, 70)
    text = printed("verify", tmp_path, code=1)
    base = int(path.stem)
    assert f"{path}: position 0, " in text
    assert f"offset {base}: damaged bytes: the CRC does not match" in text
    assert "damage: 1 damaged bytes" in text
    assert "DAMAGED, 1 place" in text
    report = json.loads(printed("verify", tmp_path, "--json", code=1))
    (found,) = report["findings"]
    assert (found["kind"], found["path"], found["offset"], found["end_offset"]) == (
        "damaged bytes",
        str(path),
        base,
        base + 1,
    )
    assert report["total"]["damage"] == 1
    printed("verify", tmp_path, "--topic", "other")
    printed("verify", tmp_path, "--topic", "orders", code=1)
    printed("verify", tmp_path, "--topic", "orders", "--partition", "0", code=1)


def test_notes_do_not_fail_the_check(tmp_path: Path) -> None:
    make_partition(tmp_path, "orders-0", plain_batches(3))
    (tmp_path / "old-0.AAAA.deleted").mkdir()
    text = printed("verify", tmp_path)
    assert "notes: 1 stray file" in text
    assert text.rstrip().endswith("sound, 1 note")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["missing"], "is not a directory"),
        ([".", "--topic", "missing"], "missing has no folder in"),
        ([".", "--partition", "1"], "--partition needs --topic"),
        ([".", "--partition", "one"], "must be 0 or a positive number"),
        ([".", "--processes", "0"], "at least 1"),
    ],
)
def test_a_check_that_cannot_be_made_ends_with_two(tmp_path: Path, arguments: list[str], problem: str) -> None:
    done = run("verify", tmp_path / arguments[0], *arguments[1:])
    assert done.code == 2
    assert problem in done.errors
    assert "Traceback" not in done.errors


def test_several_processes_find_the_same_as_one(tmp_path: Path) -> None:
    folder = make_partition(tmp_path, "orders-0", plain_batches(40))
    change(sorted(folder.glob("*.log"))[0], 70)
    # Reserved space counts as bytes to read, and costs none on the disk.
    big = make_partition(tmp_path, "big-0", plain_batches(3), is_closed=False)
    os.truncate(next(big.glob("*.log")), 300 * 1024 * 1024)
    one = json.loads(printed("verify", tmp_path, "--json", "--processes", "1", code=1))
    two = json.loads(output_of(run_program("log", "verify", tmp_path, "--json", "--processes", "2"), code=1))
    for report in (one, two):
        del report["seconds"]
    assert one == two
    assert one["total"]["bytes"] > 300 * 1024 * 1024


def test_a_terminal_shows_a_bar_and_an_interrupt_leaves_no_traceback(tmp_path: Path) -> None:
    folder = tmp_path / "big-0"
    folder.mkdir()
    with (folder / "00000000000000000000.log").open("wb") as file:
        file.truncate(2**40)
    leader, follower = pty.openpty()
    with interruptible():
        process = subprocess.Popen(
            [str(kwire_command()), "log", "verify", str(tmp_path), "--processes", "2"],
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=follower,
            start_new_session=True,
        )
    os.close(follower)
    try:
        seen = _read_until(leader, b"of 1.1 TB")
        assert b"verify [" in seen
        # Ctrl-C reaches the whole group; the processes that read must not speak up.
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(COMMAND_TIMEOUT_S) == 130
        wait_until(lambda: not _group_lives(process.pid), "the reading processes are gone")
        seen += _read_until(leader, b"interrupted")
        assert b" interrupted" in seen
        assert b"Traceback" not in seen
    finally:
        os.close(leader)
        if process.poll() is None:
            process.kill()
            process.wait()


def _read_until(terminal: int, text: bytes) -> bytes:
    """What the terminal shows up to and with `text`, or up to its end; but not for ever."""
    seen = b""
    deadline = time.monotonic() + COMMAND_TIMEOUT_S
    poll = select.poll()
    poll.register(terminal, select.POLLIN | select.POLLHUP)
    while text not in seen and poll.poll(max(deadline - time.monotonic(), 0) * 1000):
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            break  # the other side is closed
    return seen


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


# --- dump


def lines(*arguments: str | Path, code: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed("dump", *arguments, "--json", code=code).splitlines()]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A partition with text, bytes, nulls, headers, compression and a producer."""
    records = [
        Record(b"text", "größe\x1b[31m".encode(), NOW_MS, [("h", b"1"), ("n", None)]),
        Record(None, b"\xff\xfe", NOW_MS + 1),
        Record(b"gone", None, NOW_MS + 2),
    ]
    make_partition(
        tmp_path,
        "mixed-1",
        [
            build_batch(records),
            build_batch(records, compression=GZIP),
            build_batch(records, producer_id=7, producer_epoch=1, base_sequence=0),
            *plain_batches(40),
        ],
    )
    return tmp_path


def test_batches_and_records_are_printed(mixed: Path) -> None:
    text = output_of(
        run_program("log", "dump", mixed, "--topic", "mixed", "--partition", "1", "--records", "--limit", "9")
    )
    assert "offsets 0..2  position 0  " in text
    assert "  3 records  none  CreateTime 2027-01-15T08:00:00.002Z  epoch 0  crc " in text
    assert "  3 records  gzip  " in text
    assert "producer 7/1 sequence 0" in text
    assert '  0  2027-01-15T08:00:00.000Z  key "text"  value "größe\\u001b[31m"  h="1"  n=null\n' in text
    assert "  1  2027-01-15T08:00:00.001Z  key null  value base64://4=\n" in text
    assert '  5  2027-01-15T08:00:00.002Z  key "gone"  value null\n' in text
    assert "\x1b" not in text


def test_json_holds_every_field(mixed: Path) -> None:
    first, second, *_ = lines(mixed / "mixed-1", "--records")
    assert (first["topic"], first["partition"], first["position"], first["is_intact"]) == ("mixed", 1, 0, True)
    assert (first["base_offset"], first["record_count"], first["magic"]) == (0, 3, 2)
    assert first["records"][0] == {
        "offset": 0,
        "timestamp": NOW_MS,
        "key": "text",
        "value": "größe\x1b[31m",
        "headers": [{"key": "h", "value": "1"}, {"key": "n", "value": None}],
    }
    assert first["records"][1]["value"] == {"base64": "//4="}
    assert second["compression"] == GZIP
    assert [record["offset"] for record in second["records"]] == [3, 4, 5]


@pytest.mark.parametrize(("first", "last"), [(0, 0), (4, 20), (30, 48), (48, 100), (100, 200)])
def test_offsets_bound_what_is_printed(mixed: Path, first: int, last: int) -> None:
    found = lines(mixed / "mixed-1", "--records", "--from-offset", str(first), "--to-offset", str(last))
    offsets = [record["offset"] for batch in found for record in batch["records"]]
    assert offsets == list(range(first, min(last, 48) + 1))


def test_a_limit_counts_batches_or_records(mixed: Path) -> None:
    assert len(lines(mixed / "mixed-1", "--limit", "2")) == 2
    batches = lines(mixed / "mixed-1", "--limit", "5", "--records")
    assert sum(len(batch["records"]) for batch in batches) == 5


def test_a_broken_place_is_named_and_printing_goes_on(mixed: Path) -> None:
    path = sorted((mixed / "mixed-1").glob("*.log"))[0]
    position = lines(path)[1]["position"]
    change(path, position + 70)
    found = lines(path, code=1)
    assert [batch["base_offset"] for batch in found][:3] == [0, 3, 6]
    assert [batch["is_intact"] for batch in found][:3] == [True, False, True]
    change(path, position + 9)  # the length
    found = lines(path, code=1)
    assert found[1] == {"file": str(path), "position": position, "problem": "not a batch"}
    assert "DOES NOT MATCH" not in printed("dump", path, code=1)
    assert "DAMAGE: not a batch" in printed("dump", path, code=1)


def test_reserved_space_is_no_damage(tmp_path: Path) -> None:
    folder = make_partition(tmp_path, "open-0", plain_batches(3), is_closed=False)
    text = printed("dump", folder)
    assert "reserved space, all zeros" in text


def test_the_small_files_are_printed(start_kwire: Callable[..., KwireProcess]) -> None:
    server = start_kwire()
    name = unique_name("dump")
    produce_values(server.bootstrap, name, [b"v"] * 10, partition=0)
    assert server.stop() == 0
    folder = server.data_dir / f"{name}-0"
    assert re.search(r"^offset +10$", printed("dump", folder / "checkpoint"), re.MULTILINE)
    (checkpoint,) = lines(folder / "checkpoint")
    assert (checkpoint["is_clean"], checkpoint["offset"]) == (True, 10)
    assert lines(next(folder.glob("*.index")))[-1]["seal"] is True
    assert f"topics/{name}" in printed("dump", server.data_dir / "metastore.journal")
    (folder / "quarantine").write_text('{"version": 1, "ranges": []}')
    assert json.loads(printed("dump", folder / "quarantine"))["version"] == 1
    (folder / "checkpoint").write_bytes(b"KWCP")
    assert "not a complete checkpoint" in run("dump", folder / "checkpoint").errors


def test_aborted_transactions_are_printed(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    folder.mkdir()
    log = Log(str(folder), UnsyncedFiles(), run_now, LogSettings())
    producer = TransactionalProducer(7)
    producer.write(log)
    producer.abort(log)
    log.roll(NOW_MS)
    producer.write(log)
    producer.abort(log)
    producer.write(log)
    log.checkpoint()
    first = {"producer_id": 7, "first_offset": 0, "last_offset": 1, "stable_offset": 2}
    entry, seal = lines(folder / "00000000000000000000.txnindex")
    assert entry == first
    assert (seal["seal"], seal["entries"]) == (True, 1)
    assert "first_offset 0  last_offset 1" in printed("dump", folder / "00000000000000000000.txnindex")
    (checkpoint,) = lines(folder / "checkpoint")
    assert checkpoint["open_transactions"] == [{"producer_id": 7, "first_offset": 4}]
    assert checkpoint["aborted"] == [{"producer_id": 7, "first_offset": 2, "last_offset": 3, "stable_offset": 4}]
    change(folder / "00000000000000000000.txnindex", 20)
    assert "not a complete index" in run("dump", folder / "00000000000000000000.txnindex").errors


def test_group_records_are_decoded(start_kwire: Callable[..., KwireProcess]) -> None:
    from kafka import KafkaConsumer, TopicPartition
    from kafka.structs import OffsetAndMetadata

    server = start_kwire(settings={"offsets.topic.num.partitions": "1"})
    name, group = unique_name("dump"), unique_name("group")
    produce_values(server.bootstrap, name, [b"v"] * 3, partition=0)
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap, group_id=group, enable_auto_commit=False)
    consumer.commit({TopicPartition(name, 0): OffsetAndMetadata(2, "", -1)})
    consumer.close()
    assert server.stop() == 0
    found = lines(server.data_dir, "--topic", "__consumer_offsets", "--records")
    decoded = [record["decoded"] for batch in found for record in batch["records"] if "decoded" in record]
    offsets = [one for one in decoded if one["type"] == "offset"]
    assert [(one["group"], one["topic"], one["value"]["offset"]) for one in offsets] == [(group, name, 2)]
    assert '"offset": 2' in printed("dump", server.data_dir, "--topic", "__consumer_offsets", "--records")


@pytest.mark.parametrize(
    ("path", "problem"),
    [("missing", "does not exist"), (".", "--topic and --partition"), ("mixed-1/partition.metadata", "not a file")],
)
def test_what_cannot_be_printed_is_said(mixed: Path, path: str, problem: str) -> None:
    done = run("dump", mixed / path)
    assert done.code == 2
    assert problem in done.errors
    assert "Traceback" not in done.errors


def test_a_reader_that_goes_away_ends_it_quietly(mixed: Path) -> None:
    command = f"'{kwire_command()}' log dump '{mixed / 'mixed-1'}' --records --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False)
    assert json.loads(done.stdout)["base_offset"] == 0
    assert done.stderr == ""


@pytest.mark.parametrize("verb", ["verify", "dump"])
def test_help_shows_examples(verb: str) -> None:
    text = printed(verb, "--help")
    assert f"kwire log {verb} ./kwire-data" in text
    assert max(map(len, text.splitlines())) <= 120
