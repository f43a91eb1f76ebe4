"""The stored position of a topic: a damaged one is ignored, because files are removed based on it."""

from pathlib import Path

from kwire.streams.event_store.files.layout import OWNER, POSITIONS, position_path
from kwire.streams.event_store.files.writer import Position, begin_topic, read_position
from storage.disk.files import Files

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
