"""Stores, clients and readers of one stream, connected by a bag of messages that the test delivers as it likes."""

from kwire.cluster.core.control import ClientAnswer, ClientRequest
from kwire.cluster.core.entries import Position
from kwire.cluster.core.leader.writer import Writer
from kwire.cluster.core.messages import Fetched, Incarnation, Message, Refused, SegmentId
from kwire.cluster.core.policies import Limits, Policy
from kwire.cluster.core.reader.reader import Delivery, Reader, Trimmed
from kwire.cluster.core.store.segment_store import SegmentStore, StoreOutput
from tests.cluster.core.memory import MemoryMaster, MemoryStorage, cookie_of

STREAM = "s"
DELIVERIES_MAX = 20_000
LIMITS = Limits(batch_bytes=100, window_bytes=300, unacked_bytes=600, kept_bytes=200, read_bytes=100)


class World:
    """One stream with its stores and clients. Storage is durable at once; the master answers at once."""

    def __init__(self, copy_sets: list[tuple[str, ...]], policy: Policy, limits: Limits = LIMITS) -> None:
        self.policy, self.limits = policy, limits
        self.now = 0
        self.bag: list[Message] = []
        self.storage: dict[str, MemoryStorage] = {}
        self.stores: dict[str, SegmentStore] = {}
        self._starts: dict[str, int] = {}
        self.writers: dict[str, Writer] = {}
        self.readers: dict[str, Reader] = {}
        self.master = MemoryMaster(STREAM, copy_sets, policy.quorum.writes)
        self.acked: dict[str, list[Position]] = {}
        self.acked_by_epoch: dict[int, set[Position]] = {}
        self.appended: dict[tuple[int, Position], bytes] = {}
        self.delivered: dict[str, list[Delivery]] = {}
        self.gaps: dict[str, list[Trimmed]] = {}
        for store in sorted({store for copy_set in copy_sets for store in copy_set}):
            self.storage[store] = MemoryStorage()
            self.start_store(store)

    def start_store(self, name: str, *, is_limbo: bool = False) -> None:
        """Start a store, or start it again as the next incarnation."""
        self._starts[name] = self._starts.get(name, 0) + 1
        incarnation = Incarnation(cookie_of(name), self._starts[name])
        states = self.storage[name].load()
        self.stores[name] = SegmentStore(name, incarnation, states, self.limits, is_limbo=is_limbo)

    def start_writer(self, name: str) -> Writer:
        writer = self.writers[name] = Writer(name, STREAM, self.policy, self.limits)
        self.acked[name] = []
        self._collect(writer)
        return writer

    def start_reader(self, name: str) -> Reader:
        reader = self.readers[name] = Reader(name, STREAM, self.limits, seed=len(self.readers))
        self.delivered[name], self.gaps[name] = [], []
        return reader

    def elect(self, name: str) -> None:
        writer = self.writers.get(name) or self.start_writer(name)
        writer.tick(self.now)
        writer.control(self.master.elect(name, self.now, writer.candidacy), self.now)
        self._collect(writer)

    def append(self, name: str, payload: bytes) -> Position | None:
        writer = self.writers[name]
        epoch = writer.epoch
        position = writer.append(payload, self.now)
        if position is not None:
            self.appended[epoch, position] = payload
        self._collect(writer)
        return position

    def roll(self, name: str) -> None:
        self.writers[name].roll(self.now)
        self._collect(self.writers[name])

    def tick(self, milliseconds: int) -> None:
        """Let time pass for everything that runs."""
        self.now += milliseconds
        for writer in list(self.writers.values()):
            writer.tick(self.now)
            self._collect(writer)
        for name, store in self.stores.items():
            self._emit(name, store.tick(self.now))

    def read(self, rounds: int = 60) -> None:
        """Let the readers read until they find nothing more. Other messages stay in the bag."""
        for _ in range(rounds):
            self.now += self.limits.retry_ms
            for reader in self.readers.values():
                reader.tick(self.now)
                self.collect_reader(reader)
            while (message := next(filter(self._is_readers, self.bag), None)) is not None:
                self.bag.remove(message)
                self.deliver(message)

    def _is_readers(self, message: Message) -> bool:
        return message.source in self.readers or message.target in self.readers

    def deliver(self, message: Message) -> None:
        """Deliver one message, which the caller has taken from the bag. A receiver that does not run loses it."""
        target = message.target
        if target in self.stores:
            self._emit(target, self.stores[target].step(message, self.now))
        elif target in self.writers:
            self.writers[target].step(message.source, message.body, self.now)  # type: ignore[arg-type]
            self._collect(self.writers[target])
        elif target in self.readers and isinstance(message.body, Fetched | Refused):
            self.readers[target].step(message.body, self.now)
            self.collect_reader(self.readers[target])

    def take(self, **wanted: str) -> list[Message]:
        """Remove messages from the bag by source, target and kind. Several names are separated by commas."""

        def is_wanted(message: Message) -> bool:
            facts = {"source": message.source, "target": message.target, "kind": type(message.body).__name__}
            return all(facts[key] in value.split(",") for key, value in wanted.items())

        taken = [message for message in self.bag if is_wanted(message)]
        self.bag = [message for message in self.bag if not is_wanted(message)]
        return taken

    def deliver_some(self, **wanted: str) -> list[Message]:
        """Deliver the messages that are in the bag now, in order, and return them."""
        messages = self.take(**wanted)
        for message in messages:
            self.deliver(message)
        return messages

    def settle(self, rounds: int = 12) -> None:
        """Deliver everything in order, and let time pass, long enough for every retry."""
        for _ in range(rounds):
            self.deliver_all()
            self.tick(self.limits.retry_ms)
        self.deliver_all()

    def deliver_all(self) -> None:
        """Deliver everything in the bag and what follows from it, in order."""
        for _ in range(DELIVERIES_MAX):
            if not self.bag:
                return
            self.deliver(self.bag.pop(0))
        raise AssertionError("messages cause each other without an end")

    def repair(self, rounds: int = 5) -> None:
        """Let the master complete the replicas of sealed segments."""
        for _ in range(rounds):
            unclosed = {
                name: {
                    SegmentId(STREAM, number)
                    for number in self.master.segments
                    if (replica := store.replicas.get(SegmentId(STREAM, number))) is None or not replica.closed_end
                }
                for name, store in self.stores.items()
            }
            self.bag += self.master.repairs(unclosed)
            self.settle()

    def _emit(self, name: str, output: StoreOutput) -> None:
        self.storage[name].apply(output.writes)
        self.bag += [self.storage[name].read(read) for read in output.reads]
        self.bag += output.messages

    def _collect(self, writer: Writer) -> None:
        for _ in range(50):
            output = writer.take_output()
            self.bag += output.messages
            self.acked[writer.name] += output.acked
            self.acked_by_epoch.setdefault(writer.epoch, set()).update(output.acked)
            if not output.requests:
                return
            for request in output.requests:
                answer = self._ask_master(request)
                if answer is not None:
                    writer.control(answer, self.now)
        raise AssertionError("the writer does not stop asking the master")

    def _ask_master(self, request: ClientRequest) -> ClientAnswer | None:
        return self.master.handle(request)

    def collect_reader(self, reader: Reader) -> None:
        requests, reader.requests = reader.requests, []
        for request in requests:
            answer = self.master.handle(request)
            reader.control(answer, self.now)  # type: ignore[arg-type]
        self.bag += reader.messages
        self.delivered[reader.name] += [one for one in reader.deliveries if isinstance(one, Delivery)]
        self.gaps[reader.name] += [one for one in reader.deliveries if isinstance(one, Trimmed)]
        reader.messages, reader.deliveries = [], []
