"""The last event of a batch of three million records, over HTTP: found soon, and the loop is not held."""

import json
import time
import urllib.request
from pathlib import Path

from storage.batch.record_batch import Record, build_batch
from tests.end_to_end.test_body_stalls import longest_stall_s
from tests.support.clients import Topics
from tests.support.clients_raw import RawConnection, produce_request, produced
from tests.support.server import KwireProcess

ZSTD = 4
COUNT = 3_000_000
TIMEOUT_S = 120.0
# It took half a minute, and on a busy machine more.
SECONDS_MAX = 12.0
STALL_SECONDS_MAX = 0.3


def event_at(process: KwireProcess, topic: str, offset: int) -> tuple[float, object]:
    began = time.monotonic()
    with urllib.request.urlopen(f"{process.http_url}/rooms/{topic}/events/{offset}", timeout=TIMEOUT_S) as answer:
        event = json.load(answer)
    assert event["offset"] == offset
    return time.monotonic() - began, event["data"]


def test_the_last_event_of_a_large_batch_is_found_soon(tmp_path: Path) -> None:
    process = KwireProcess(tmp_path)
    process.start()
    try:
        process.ready()
        topics = Topics(process.bootstrap)
        topic = topics.create("large-batch", configs={"max.message.bytes": "5000000"})
        topics.close()
        batch = build_batch([Record(None, b"1", 1_700_000_000_000)] * COUNT, compression=ZSTD)
        with RawConnection(process.kafka_address) as connection:
            answer = produced(connection.call(produce_request(topic, bytes(batch)), 9))
            assert answer.error_code == 0, answer
        took = [event_at(process, topic, offset) for offset in (COUNT - 1, COUNT - 1, COUNT // 2, 0)]
        print("seconds:", ", ".join(f"{seconds:.2f}" for seconds, _ in took))
        assert [data for _, data in took] == [1] * 4
        assert max(seconds for seconds, _ in took) < SECONDS_MAX
        stall_s = longest_stall_s(process)
        print(f"longest stall {stall_s:.3f} s")
        assert stall_s < STALL_SECONDS_MAX
        assert process.stop() == 0
    finally:
        process.kill()
