"""Simulated group members on raw sockets: state machines that create requests and process responses.

A member has one request in flight at a time. `crowd.py` calls `act` when the next heartbeat is due, and `receive` with
each response. Both send the next request, if there is one. Members do not wait and do not use a clock.
"""

import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence

from benchmark.groups import consumer_wire, wire
from benchmark.groups.consumer_wire import JOINING_EPOCH, LEAVING_EPOCH, Owned, consumer_heartbeat
from benchmark.groups.options import CLASSIC, CONSUMER
from benchmark.groups.wire import COME_BACK, NO_ERROR, Reader
from benchmark.wire import WireError


class Member(ABC):
    """A member with one connection. Its first `act` joins the group."""

    def __init__(self, connection: socket.socket, group: str, number: int, topic: str, partition_count: int) -> None:
        self.connection = connection
        self.group = group
        self.number = number
        self.topic = topic
        self.partition_count = partition_count
        # The generation or epoch of the assignment in `partitions`, or 0 without an assignment.
        self.generation = 0
        self.partitions: Sequence[int] = ()
        self.is_waiting = False
        # Whether the request in flight is a heartbeat of a settled member. The benchmark measures only these.
        self.is_beating = False
        self.has_left = False
        self._has_said_goodbye = False
        self.join_count = 0

    @property
    @abstractmethod
    def is_settled(self) -> bool:
        """Whether the member has its final assignment, so that it only sends heartbeats."""

    @abstractmethod
    def act(self) -> None:
        """Join, or send a heartbeat."""

    def leave(self) -> None:
        """Leave the group, now or after the response to the request in flight."""
        self.has_left = True
        if not self.is_waiting:
            self._say_goodbye()

    def receive(self, frame: bytes) -> None:
        """Process a response. Raises WireError for an error that does not occur in a healthy group."""
        self.is_waiting = self.is_beating = False
        if not self.has_left:
            self._take(frame)
        elif not self._has_said_goodbye:
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        self._has_said_goodbye = True
        self._send(self._goodbye())

    @abstractmethod
    def _goodbye(self) -> bytes:
        """Return the request to leave the group."""

    @abstractmethod
    def _take(self, frame: bytes) -> None: ...

    def _send(self, frame: bytes) -> None:
        self.is_waiting = True
        self.connection.sendall(frame)

    def _refused(self, error: int, message: str = "") -> WireError:
        return WireError(f"a {type(self).__name__} of {self.group} was answered error code {error} {message}".rstrip())


class ClassicMember(Member):
    """The classic protocol: JoinGroup, SyncGroup, Heartbeat. The leader assigns ranges."""

    def __init__(self, connection: socket.socket, group: str, number: int, topic: str, partition_count: int) -> None:
        super().__init__(connection, group, number, topic, partition_count)
        self.member_id = ""
        self._has_joined = False
        self._read = self._joined

    @property
    def is_settled(self) -> bool:
        return self._has_joined

    def act(self) -> None:
        if self._has_joined:
            self.is_beating = True
            self._read = self._heard
            self._send(wire.heartbeat(self.group, self.generation, self.member_id))
        else:
            self._join()

    def _goodbye(self) -> bytes:
        return wire.leave_group(self.group, self.member_id)

    def _take(self, frame: bytes) -> None:
        reader = Reader(frame, wire.ERROR_AT)
        self._read(reader.int16(), reader)

    def _join(self) -> None:
        self._has_joined = False
        self.join_count += 1
        self._read = self._joined
        self._send(wire.join_group(self.group, self.member_id, self.topic))

    def _joined(self, error: int, reader: Reader) -> None:
        generation = reader.int32()
        reader.string()  # The protocol's name.
        leader_id, own_id = reader.string(), reader.string()
        if error == wire.MEMBER_ID_REQUIRED:
            self.member_id = own_id
            self._join()
        elif error == NO_ERROR:
            self.member_id, self.generation = own_id, generation
            assignments = self._assign(reader) if leader_id == own_id else {}
            self._read = self._synced
            self._send(wire.sync_group(self.group, generation, own_id, self.topic, assignments))
        else:
            self._join_again(error)

    def _assign(self, reader: Reader) -> dict[str, list[int]]:
        ids = []
        for _ in range(reader.int32()):
            ids.append(reader.string())
            reader.string()  # The group instance id.
            reader.data()  # The subscription.
        return {one: list(range(place, self.partition_count, len(ids))) for place, one in enumerate(sorted(ids))}

    def _synced(self, error: int, reader: Reader) -> None:
        if error == NO_ERROR:
            self.partitions = wire.assigned_partitions(reader.data())
            self._has_joined = True
        else:
            self._join_again(error)

    def _heard(self, error: int, reader: Reader) -> None:
        if error != NO_ERROR:
            self._join_again(error)

    def _join_again(self, error: int) -> None:
        """Join again now, or if there is no coordinator yet, at the next `act`. Raises WireError for other errors."""
        if error in COME_BACK:
            return
        if error == wire.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif error not in (wire.REBALANCE_IN_PROGRESS, wire.ILLEGAL_GENERATION):
            raise self._refused(error)
        self._join()


class ConsumerMember(Member):
    """The consumer protocol (KIP-848): only heartbeats. The next heartbeat confirms a new assignment immediately."""

    def __init__(self, connection: socket.socket, group: str, number: int, topic: str, partition_count: int) -> None:
        super().__init__(connection, group, number, topic, partition_count)
        self.member_id = f"{group}-{number:04d}"
        self._owned: tuple[Owned, ...] = ()
        # Whether the member has a new assignment that it has not confirmed to the coordinator yet.
        self._has_news = False

    @property
    def is_settled(self) -> bool:
        return self.generation > JOINING_EPOCH and not self._has_news

    def act(self) -> None:
        if self.generation == JOINING_EPOCH:
            self.join_count += 1
            self._owned, self.partitions = (), ()
            self._send(consumer_heartbeat(self.group, self.member_id, JOINING_EPOCH, self.topic, ()))
            return
        self.is_beating = not self._has_news
        owned = self._owned if self._has_news else None
        self._has_news = False
        self._send(consumer_heartbeat(self.group, self.member_id, self.generation, None, owned))

    def _goodbye(self) -> bytes:
        return consumer_heartbeat(self.group, self.member_id, LEAVING_EPOCH)

    def _take(self, frame: bytes) -> None:
        answer = consumer_wire.read_answer(frame)
        if answer.error in COME_BACK:
            return
        if answer.error in (wire.UNKNOWN_MEMBER_ID, consumer_wire.FENCED_MEMBER_EPOCH):
            self.generation = JOINING_EPOCH
            self.act()
        elif answer.error != NO_ERROR:
            raise self._refused(answer.error, answer.message)
        else:
            self.generation = answer.epoch
            if answer.assigned is not None and answer.assigned != self._owned:
                self._owned = answer.assigned
                self.partitions = [index for owned in answer.assigned for index in owned.partitions]
                self._has_news = True
                self.act()


KINDS: dict[str, type[Member]] = {CLASSIC: ClassicMember, CONSUMER: ConsumerMember}


def is_shared_out(members: Sequence[Member]) -> bool:
    """Return whether the group is stable: all members have the same generation, and each partition has one owner."""
    first = members[0]
    given = sorted(index for member in members for index in member.partitions)
    return given == list(range(first.partition_count)) and all(
        member.is_settled and member.generation == first.generation and (member.partitions or len(members) > len(given))
        for member in members
    )
