"""Topics that are deleted right after their first record, on a disk that takes a second for each sync."""

import struct
import time

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.bounds import ANSWER_SECONDS_MAX
from benchmark.admin import Admin
from benchmark.groups.wire import string
from benchmark.wire import ProduceCall, read_frame, record_batch, request_frame

DELETE_TOPICS, DELETE_TOPICS_VERSION = 20, 3
# After this time the record has arrived, and its sync, which takes a second, is running.
SYNC_BEGUN_SECONDS = 0.2
# The topics of the good client do not wait for a sync. The deleted topics do.
QUICK_ELSEWHERE = {"kwire.log.sync": "os", "kwire.rooms.log.sync": "os"}


def _delete_after_first_write(target: Target) -> None:
    for number in range(target.size):
        topic = f"abused-{target.strikes}-{number}"
        with Admin(target.kafka_address) as admin:
            admin.make_topic(topic, 1, {"kwire.log.sync": "group"})
        call = ProduceCall.build(topic, record_batch(b"x", time.time_ns() // 1_000_000))
        body = struct.pack(">i", 1) + string(topic) + struct.pack(">i", ANSWER_SECONDS_MAX * 1000)
        with target.kafka() as writer, target.kafka() as deleter:
            writer.sendall(call.frame)
            time.sleep(SYNC_BEGUN_SECONDS)
            deleter.sendall(request_frame(DELETE_TOPICS, DELETE_TOPICS_VERSION, body))
            read_frame(deleter)


ATTACKS = (
    Attack(
        "slow-sync-delete",
        "{} DeleteTopics after the first write, 1 s syncs",
        3,
        1,
        _delete_after_first_write,
        settings=QUICK_ELSEWHERE,
        has_slow_sync=True,
    ),
)
