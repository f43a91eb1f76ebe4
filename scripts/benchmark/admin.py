"""The requests that prepare works and read their results: topics, settings, offsets. Encoded by hand, as in `wire.py`.

Each of Kafka's command-line tools takes a second to start, and none can create a hundred thousand topics in one run.
"""

import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from types import TracebackType

from benchmark.access.client_config import User
from benchmark.access.login import log_in_scram
from benchmark.wire import ERROR_CODE, FetchCall, WireError, connect, read_frame, request_frame

LIST_OFFSETS, LIST_OFFSETS_VERSION = 2, 1
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 2
ALTER_CONFIGS, ALTER_CONFIGS_VERSION = 44, 0
LATEST, EARLIEST = -1, -2
TOPIC_RESOURCE, SET = 2, 0

TOPICS_PER_REQUEST = 500
ANSWER_TIMEOUT_SECONDS = 120
CREATE_TIMEOUT_MS = ANSWER_TIMEOUT_SECONDS * 1000
RETRY_SECONDS = 0.003
BODY_AT = 8  # After the length and the correlation id.


class Admin:
    """An admin client with one connection. Use it in a `with` statement."""

    def __init__(self, address: tuple[str, int], user: User | None = None) -> None:
        self._connection = connect(address, ANSWER_TIMEOUT_SECONDS)
        if user is not None:
            log_in_scram(self._connection, user)

    def __enter__(self) -> "Admin":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def make_topic(self, name: str, partitions: int, configs: Mapping[str, object]) -> None:
        """Create a topic. Return when it accepts records."""
        self.create_topics([name], partitions, configs)
        self.await_leader(name, partitions)

    def create_topics(self, names: Iterable[str], partitions: int, configs: Mapping[str, object]) -> None:
        """Create topics. Kafka answers before the broker leads the partitions: `await_leader` waits for that."""
        left = iter(names)
        while some := list(islice(left, TOPICS_PER_REQUEST)):
            self._create(some, partitions, configs)

    def _create(self, names: Sequence[str], partitions: int, configs: Mapping[str, object]) -> None:
        shape = struct.pack(">ihi", partitions, 1, 0) + struct.pack(">i", len(configs))
        shape += b"".join(_string(name) + _string(str(value)) for name, value in configs.items())
        body = struct.pack(">i", len(names)) + b"".join(_string(name) + shape for name in names)
        answer = self._call(CREATE_TOPICS, CREATE_TOPICS_VERSION, body + struct.pack(">ib", CREATE_TIMEOUT_MS, 0))
        at = BODY_AT + 4 + 4
        for _ in names:
            name, at = _read_string(answer, at)
            (code,) = ERROR_CODE.unpack_from(answer, at)
            message, at = _read_string(answer, at + 2)
            if code:
                raise WireError(f"CreateTopics answered error code {code} for {name}: {message}")

    def await_leader(self, topic: str, partitions: int) -> None:
        deadline = time.perf_counter() + ANSWER_TIMEOUT_SECONDS
        while True:
            try:
                self.offsets(topic, partitions)
                return
            except WireError:
                if time.perf_counter() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def set_topic_config(self, topic: str, name: str, value: object) -> None:
        body = struct.pack(">ib", 1, TOPIC_RESOURCE) + _string(topic)
        body += struct.pack(">i", 1) + _string(name) + struct.pack(">b", SET) + _string(str(value)) + b"\0"
        answer = self._call(ALTER_CONFIGS, ALTER_CONFIGS_VERSION, body)
        (code,) = ERROR_CODE.unpack_from(answer, BODY_AT + 4 + 4)
        if code:
            message, _ = _read_string(answer, BODY_AT + 4 + 4 + 2)
            raise WireError(f"IncrementalAlterConfigs answered error code {code} for {topic}: {message}")

    def offsets(self, topic: str, partitions: int, position: int = LATEST) -> list[int]:
        asked = b"".join(struct.pack(">iq", index, position) for index in range(partitions))
        body = struct.pack(">ii", -1, 1) + _string(topic) + struct.pack(">i", partitions) + asked
        answer = self._call(LIST_OFFSETS, LIST_OFFSETS_VERSION, body)
        _, at = _read_string(answer, BODY_AT + 4)
        found = {}
        for index, code, _, offset in struct.iter_unpack(">ihqq", answer[at + 4 :]):
            if code:
                raise WireError(f"ListOffsets answered error code {code} for {topic}-{index}")
            found[index] = offset
        return [found[index] for index in range(partitions)]

    def holds(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether the record at `offset` can be fetched."""
        call = FetchCall.build(topic, 0, partition)
        self._connection.sendall(call.frame(offset))
        return call.base_offset(read_frame(self._connection), offset) <= offset

    def _call(self, api_key: int, api_version: int, body: bytes) -> bytes:
        self._connection.sendall(request_frame(api_key, api_version, body))
        return read_frame(self._connection)


def await_served(address: tuple[str, int], topic: str, ends: Sequence[int], timeout_seconds: float) -> float:
    """Poll until the last record of every partition can be read. Return this time. The server may not listen yet."""
    deadline = time.perf_counter() + timeout_seconds
    waiting = {index: end for index, end in enumerate(ends) if end}
    while time.perf_counter() < deadline:
        try:
            with Admin(address) as admin:
                for index in sorted(waiting):
                    if admin.holds(topic, index, waiting[index] - 1):
                        del waiting[index]
        except (OSError, WireError):
            time.sleep(RETRY_SECONDS)
        if not waiting:
            return time.perf_counter()
    raise WireError(f"{topic}: partitions {sorted(waiting)} do not serve their last record after {timeout_seconds} s")


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _read_string(data: bytes, at: int) -> tuple[str, int]:
    """Return a nullable string ("" if it is null), and the position after it."""
    (size,) = struct.unpack_from(">h", data, at)
    end = at + 2 + max(size, 0)
    return data[at + 2 : end].decode(), end
