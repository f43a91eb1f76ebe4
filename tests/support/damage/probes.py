"""Questions to a server that was started on damaged files, each about one of them."""

import io
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cached_property
from typing import Any

from kafka.protocol.consumer import OffsetFetchRequest

from kwire.cli import main
from tests.support.clients_raw import RawConnection, produce_request, produced
from tests.support.damage.faults import Fault
from tests.support.damage.log_reader import BAD_CRC, DAMAGE_CODES, KAFKA_STORAGE_ERROR, read_partition
from tests.support.damage.outcomes import Outcome, Silent
from tests.support.damage.world import (
    BUSY,
    CELLS,
    COMMITTED_OFFSET,
    END,
    FILE_TOPICS,
    FILES_DIR,
    LOST_BEFORE,
    ROOM_EVENTS,
    World,
    batch_at,
    event_topic_of,
    files_of,
    group_of,
    init_request,
    room_of,
    transactional_id_of,
)
from tests.support.http_json import ask
from tests.support.server import KwireProcess, wait_until

# NOT_COORDINATOR and KAFKA_STORAGE_ERROR, where a shard cannot be read.
SHARD_CODES = (*BUSY[:2], 16, KAFKA_STORAGE_ERROR)
PATIENCE_S = 10.0
FILES_PATIENCE_S = 3.0


class Probe:
    """One started server. Every question returns an outcome, or raises Silent."""

    def __init__(self, world: World, server: KwireProcess, connection: RawConnection) -> None:
        self.world = world
        self.server = server
        self.connection = connection

    def is_logged(self, *names: str) -> bool:
        """Whether a warning or an error in the server's log has one of these names in it."""
        text = self.server.stderr_path.read_text(errors="replace")
        lines = [line for line in text.splitlines() if " WARNING " in line or " ERROR " in line]
        return any(re.search(rf"{re.escape(name)}(?![0-9])", line) for line in lines for name in names)

    def _named(self, what: str, *names: str) -> Outcome:
        if not self.is_logged(*names):
            raise Silent(f"{what}, and the server's log does not name {' or '.join(names)}")
        return Outcome.NAMED

    # --- logs

    def cell(self, cell: int, *, was_damaged_before: bool = False) -> Outcome:
        """All records, or an error for each that is missing, and appends above all that were acknowledged."""
        content = read_partition(self.connection, CELLS, cell, END)
        expected = dict(self.world.values)
        if was_damaged_before:
            for offset in LOST_BEFORE:
                if content.errors.get(offset) not in DAMAGE_CODES:
                    raise Silent(f"offset {offset} was in quarantine, and now answers {content.errors.get(offset)}")
                del expected[offset]
        for offset, value in content.values.items():
            if offset < END and expected.get(offset) != value:
                raise Silent(f"offset {offset} has {value!r}, it had {expected.get(offset)!r}")
        missing = [offset for offset in expected if offset not in content.values]
        for offset in missing:
            if content.errors.get(offset) not in (*DAMAGE_CODES, BAD_CRC):
                raise Silent(f"offset {offset} is missing and answers {content.errors.get(offset)}")
        is_writable = self._append(cell)
        by_server = [offset for offset in missing if content.errors[offset] != BAD_CRC]
        if by_server or not is_writable:
            self._named(f"offsets {by_server} are lost", f"{CELLS}-{cell}")
        if not is_writable:
            return Outcome.READ_ONLY
        return Outcome.NAMED if missing else Outcome.WHOLE

    def _append(self, cell: int) -> bool:
        """Whether a record is taken; its offset was never given before."""
        records = batch_at(self.world.now_ms, [b"after the damage"])
        answer = produced(self.connection.call(produce_request(CELLS, records, partition=cell), 8))
        if answer.error_code == KAFKA_STORAGE_ERROR:
            return False
        if answer.error_code or answer.base_offset < END:
            raise Silent(f"an append answers {answer.error_code}, offset {answer.base_offset}; the log ended at {END}")
        return True

    def room(self, fault: Fault) -> Outcome:
        name = room_of(fault)
        found: list[int] = []
        answer = ask(f"{self.server.http_url}/rooms/{name}/events?limit=100")
        if answer.status == 200:
            found = [one["data"] for one in answer.body["events"]]
        if found == [*range(ROOM_EVENTS // 2)] * 2:
            return Outcome.WHOLE
        return self._named(f"room {name} answers {answer.status} {found}", f"{name}-0")

    def event_topic(self, fault: Fault) -> Outcome:
        name = event_topic_of(fault)
        answer = ask(f"{self.server.http_url}/topics/{name}/events")
        found = [one["id"] for one in answer.body["events"]] if answer.status == 200 else []
        expected = self.world.event_ids[name]
        if found[: len(expected)] == expected:
            return Outcome.WHOLE
        return self._named(f"topic {name} answers {answer.status} {found}", f"{name}-0", name)

    def all_events(self) -> Outcome:
        """The event journal: all events in their global order, and a commit that follows them."""
        for fault in Fault:
            if self.event_topic(fault) is not Outcome.WHOLE:
                raise Silent(f"{event_topic_of(fault)} has suffered")
        expected = [one for ids in self.world.event_ids.values() for one in ids]
        found = self._subscribed()
        answer = ask(f"{self.server.http_url}/events", "POST", self._event())
        if answer.status == 201 and set(found) >= set(expected):
            return Outcome.WHOLE
        return self._named(f"publishing answers {answer.status}, the order has {len(found)} events", "__events-0")

    def _subscribed(self) -> list[str]:
        """The ids of all events by their global order, up to the first mark or error."""
        url = f"{self.server.http_url}/subscribe/all?from=oldest"
        found: list[str] = []
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as lines:
                for line in lines:
                    message = json.loads(line)
                    if "id" in message:
                        found.append(message["id"])
                    elif message["control"] != "subscribed":
                        break
        except urllib.error.HTTPError as error:
            error.close()
        return found

    def _event(self) -> dict[str, Any]:
        return {"topic": event_topic_of(Fault.REMOVED), "type": "made", "payload": {"n": -1}}

    # --- event files

    def event_files(self, topic: str) -> Outcome:
        """The files are as they were, made anew from the log if need be, or a check of them says which are not."""
        whole, following = self._looked_at_files
        if topic in following:
            return Outcome.WHOLE
        if topic in whole:
            return self._named(f"a new event of {topic} gets no file", topic)
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            code = main(["event", "verify", "--quiet", "--dir", str(self.server.directory / FILES_DIR), topic])
        if code == 1 or self.is_logged(topic):
            return Outcome.NAMED
        raise Silent(f"files of {topic} are not what they were, and verify says {code} {out.getvalue()}")

    @cached_property
    def _looked_at_files(self) -> tuple[set[str], set[str]]:
        """The topics whose files are as they were, and those of them for which a new event gets its file."""
        known = self.world.event_files
        whole = self._topics_with(lambda topic, found: found == known[topic])
        events = [{"topic": topic, "type": "made", "payload": {}} for topic in sorted(whole)]
        answer = ask(f"{self.server.http_url}/events", "POST", events)
        assert answer.status == 201, answer
        return whole, self._topics_with(lambda topic, found: topic in whole and len(found) == len(known[topic]) + 1)

    def _topics_with(self, is_right: Callable[[str, Mapping[str, bytes]], bool]) -> set[str]:
        """Those that are right within some time; what is wrong may stay so, and the wait is for all of them."""
        right: set[str] = set()

        def are_all() -> bool:
            right.update(one for one in FILE_TOPICS if is_right(one, files_of(self.server.directory, one)))
            return len(right) == len(FILE_TOPICS)

        with suppress(AssertionError):
            wait_until(are_all, "event files", FILES_PATIENCE_S)
        return right

    def all_event_files(self) -> Outcome:
        if {self.event_files(topic) for topic in FILE_TOPICS[::4]} == {Outcome.WHOLE}:
            return Outcome.WHOLE
        raise Silent("event files have suffered")

    # --- coordinators

    def group(self, fault: Fault) -> Outcome:
        name = group_of(fault)
        topic = OffsetFetchRequest.OffsetFetchRequestTopic(name=CELLS, partition_indexes=[0])
        request = OffsetFetchRequest(group_id=name, topics=[topic])

        def asked() -> tuple[int, int]:
            answer = self.connection.call(request, 5)
            part = answer.topics[0].partitions[0] if answer.topics else None
            return answer.error_code or (part.error_code if part else 0), part.committed_offset if part else -1

        code, offset = self._settled(asked, f"__consumer_offsets-{self._shard(fault)}")
        if code:
            return self._named(f"group {name} answers {code}", f"__consumer_offsets-{self._shard(fault)}")
        if offset != COMMITTED_OFFSET:
            raise Silent(f"group {name} committed {COMMITTED_OFFSET} and is answered {offset}")
        return Outcome.WHOLE

    def transactional_id(self, fault: Fault) -> Outcome:
        name = transactional_id_of(fault)

        def asked() -> tuple[int, int]:
            answer = self.connection.call(init_request(name), 1)
            return answer.error_code, answer.producer_id

        code, producer_id = self._settled(asked, f"__transaction_state-{self._shard(fault)}")
        if code:
            return self._named(f"{name} answers {code}", f"__transaction_state-{self._shard(fault)}")
        if producer_id != self.world.producer_ids[name]:
            raise Silent(f"{name} had producer id {self.world.producer_ids[name]} and is given {producer_id}")
        return Outcome.WHOLE

    def _settled(self, asked: Any, log_name: str) -> tuple[int, int]:
        """The answer once the shard has been read, or has turned out to be unreadable."""
        answer: tuple[int, int] = (0, 0)

        def is_settled() -> bool:
            nonlocal answer
            answer = asked()
            return answer[0] not in SHARD_CODES or self.is_logged(log_name)

        try:
            wait_until(is_settled, f"{log_name} is loaded", PATIENCE_S)
        except AssertionError:
            raise Silent(f"{log_name} answers {answer}, and the server's log does not say why") from None
        return answer

    def _shard(self, fault: Fault) -> int:
        return list(Fault).index(fault)

    # --- the node

    def everything(self) -> Outcome:
        """Nothing is lost at all: for files that say how to begin. Logs with a kind of their own are not asked."""
        for cell in range(0, self.world.cell_count, 10):
            if self.cell(cell) is not Outcome.WHOLE:
                raise Silent(f"{CELLS}-{cell} has suffered")
        for fault in Fault:
            checks = (self.group(fault), self.transactional_id(fault), self.room(fault), self.event_topic(fault))
            if set(checks) != {Outcome.WHOLE}:
                raise Silent(f"one of {fault} has suffered: {checks}")
        return Outcome.WHOLE

    def webhooks(self) -> Outcome:
        """Definitions are in the catalogue; the log keeps where each of them stands. One that is lost has a reason."""
        answer = ask(f"{self.server.http_url}/webhooks/{self.world.webhook['id']}")
        if answer.status == 200 and all(answer.body[name] == self.world.webhook[name] for name in ("state", "reason")):
            return Outcome.WHOLE
        return self._named(f"the webhook answers {answer.status} {answer.body}", "__webhooks-0", "__webhooks")
