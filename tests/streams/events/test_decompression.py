"""Large compressed batches: a thread decompresses them, without a copy on the event loop."""

from pathlib import Path

import pytest

from kwire.streams.events import reading as event_reading
from kwire.streams.events.reading import EventReader
from storage.batch.format import ZSTD
from storage.batch.record_batch import Record, build_batch
from tests.support.events import append, lone_partition, read_all, stream_of


def test_batch_for_a_thread_is_not_copied_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bytes | memoryview] = []
    decompress = event_reading._decompress

    def keep(codec: int, payload: bytes | memoryview, budget_bytes: int) -> bytes:
        given.append(payload)
        return decompress(codec, payload, budget_bytes)

    monkeypatch.setattr(event_reading, "_decompress", keep)
    monkeypatch.setattr(event_reading, "INLINE_COMPRESSED_BYTES_MAX", 0)
    partition = lone_partition(tmp_path)
    batch = build_batch([Record(None, bytes(200), 1) for _ in range(2000)], compression=ZSTD)
    append(partition, batch)
    assert len(read_all(EventReader(stream_of(partition), 0))) == 2000
    assert {type(payload) for payload in given} == {memoryview}
