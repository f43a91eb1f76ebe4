"""The stored position of a topic: a damaged one is ignored, because files are removed based on it."""

from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

from kwire.streams.event_store.files.layout import OWNER, POSITIONS, FileEvent, position_path
from kwire.streams.event_store.files.writer import (
    Position,
    TopicPart,
    begin_topic,
    open_root,
    read_position,
    write_round,
)
from storage.disk.files import Files
from tests.support.simulated_disk import Crashed, SimulatedDisk, SimulatedFiles

ROOT = "/out"
# Random states of the disk after each power cut.
POWER_CUTS = 10
POSITION = Position("6912bbd24dfb4dfe8434a32af450f850", 1234)


def test_a_position_with_a_flipped_bit_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / POSITIONS).mkdir(parents=True)
    (tmp_path / OWNER).write_text("{}")
    begin_topic(Files(), str(tmp_path), "orders", POSITION)
    path = tmp_path / position_path("orders")
    data = path.read_bytes()
    for at in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :])
            assert read_position(Files(), str(tmp_path), "orders") in (None, POSITION), (at, bit)


def test_a_position_of_an_older_release_is_read(tmp_path: Path) -> None:
    path = tmp_path / position_path("orders")
    path.parent.mkdir(parents=True)
    path.write_bytes(b'{"topicId": "6912bbd24dfb4dfe8434a32af450f850", "next": 1234}\n')
    assert read_position(Files(), str(tmp_path), "orders") == POSITION


def test_a_topic_that_a_killed_server_began_is_known_after_a_power_cut() -> None:
    """Otherwise its folder would look like that of somebody else, and it would never get files again."""
    for killed_at in count(1):
        for seed in range(POWER_CUTS):
            disk = SimulatedDisk()
            files = SimulatedFiles(disk)
            open_root(files, ROOT, "this server")
            disk.crash_at = disk.call_count + killed_at
            with suppress(Crashed):
                begin_topic(files, ROOT, "orders", Position("1f", 0))
            is_over = disk.call_count < disk.crash_at
            disk.restarted()
            disk.crash_at = None
            files = SimulatedFiles(disk)
            if "orders" in open_root(files, ROOT, "this server"):
                event = FileEvent(1, "2026-01-01T00:00:00Z", "made", b"{}")
                write_round(files, ROOT, [TopicPart("orders", Position("1f", 1), [event])])
            disk = disk.after_power_cut(Random(seed))
            files = SimulatedFiles(disk)
            is_known = "orders" in open_root(files, ROOT, "this server")
            assert is_known or not files.exists(f"{ROOT}/data/orders"), (killed_at, seed)
        if is_over:
            assert killed_at > 1
            return
