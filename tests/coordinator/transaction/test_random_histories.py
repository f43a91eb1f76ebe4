"""Random histories of transactions: every transaction has one outcome, the one that was answered."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kwire.coordinator.transaction.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducer,
    ListTransactions,
    ProducerAnswer,
    VerifyPartitions,
)
from kwire.coordinator.transaction.coordinator import HasTransactionalId
from kwire.coordinator.transaction.marker_effect import WriteMarkers
from kwire.coordinator.transaction.states import State, TopicPartition
from kwire.errors import ErrorCode, KafkaError
from tests.coordinator.transaction.partitions import Data, Partitions
from tests.coordinator.transaction.world import SHARD_COUNT, World
from tests.support.effort import examples

# Two producers for each transactional id keep each other out; the odd ones are of V2.
SLOTS = 4
PARTITIONS: tuple[TopicPartition, ...] = (("t", 0), ("t", 1), ("__consumer_offsets", 0))
TIMEOUT_MS = 3_000
# After these a producer has to ask for an epoch before it does anything else.
LOST = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
)
ROUNDS_MAX = 40


class Producer:
    """What one producer believes. It asks one thing at a time, as Kafka's producers do, and repeats an end until it
    knows what became of it."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.transactional_id = "xy"[slot // 2]
        self.is_v2 = slot % 2 == 1
        self.producer_id = -1
        self.producer_epoch = -1
        self.transaction = -1
        self.added: set[TopicPartition] = set()
        self.is_asking = False
        self.is_usable = False
        self.ending: bool | None = None


class TransactionHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(
            abort_timed_out_interval_ms=1_000,
            transactional_id_expiration_ms=60_000,
            remove_expired_interval_ms=10_000,
        )
        self.partitions = Partitions()
        self.producers = [Producer(slot) for slot in range(SLOTS)]
        self.transaction = 0
        # How producers were told that their transactions ended.
        self.told: dict[int, bool] = {}
        # To whom each epoch was given.
        self.owners: dict[tuple[int, int], int] = {}
        # Counts power cuts: an answer from before one never arrives.
        self.life = 0
        self.told_too_early: list[WriteMarkers] = []
        self.world.on_markers = self.markers_asked
        self.world.transactions.load()
        self.world.timers.advance(100)

    # Asking

    def ask(self, producer: Producer, command: HasTransactionalId[Any], then: Callable[[Any], None]) -> None:
        life, answers = self.life, []
        producer.is_asking = True

        def reply(answer: Any) -> None:
            answers.append(answer)
            assert len(answers) == 1, "answered twice"
            if life == self.life:
                producer.is_asking = False
                then(answer)

        self.world.transactions.submit(command, reply)

    def idle(self, slot: int) -> Producer | None:
        """The producer, if it may begin something; one that has no epoch asks for one first."""
        producer = self.producers[slot]
        if not producer.is_asking and not producer.is_usable:
            self.init(producer, goes_on=False)
        return None if producer.is_asking or not producer.is_usable or producer.ending is not None else producer

    def owned(self, producer: Producer, answer: ProducerAnswer) -> None:
        epoch = (answer.producer_id, answer.producer_epoch)
        assert self.owners.setdefault(epoch, producer.slot) == producer.slot, "two producers have one epoch"
        producer.producer_id, producer.producer_epoch = epoch
        self.begin(producer)

    def begin(self, producer: Producer) -> None:
        self.transaction += 1
        producer.transaction = self.transaction
        producer.added = set()
        producer.ending = None

    def init(self, producer: Producer, goes_on: bool, fresh_producer_id: int = -1) -> None:
        command = InitProducer(
            transactional_id=producer.transactional_id,
            timeout_ms=TIMEOUT_MS,
            producer_id=producer.producer_id if goes_on else -1,
            producer_epoch=producer.producer_epoch if goes_on else -1,
            fresh_producer_id=fresh_producer_id,
        )

        def then(answer: ProducerAnswer) -> None:
            if answer.needs_producer_id:
                self.init(producer, goes_on, self.world.fresh_producer_id())
            elif answer.error is ErrorCode.NONE:
                self.owned(producer, answer)
                producer.is_usable = True

        self.ask(producer, command, then)

    def end(self, producer: Producer, is_commit: bool, fresh_producer_id: int = -1) -> None:
        producer.ending = is_commit
        command = EndTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_commit=is_commit,
            is_v2=producer.is_v2,
            fresh_producer_id=fresh_producer_id,
        )

        def then(answer: ProducerAnswer) -> None:
            if answer.needs_producer_id:
                self.end(producer, is_commit, self.world.fresh_producer_id())
            elif answer.error is ErrorCode.NONE:
                self.told[producer.transaction] = is_commit
                if producer.is_v2:
                    self.owned(producer, answer)
                else:
                    self.begin(producer)
            elif answer.error in LOST:
                producer.is_usable = False

        self.ask(producer, command, then)

    def markers_asked(self, effect: WriteMarkers) -> None:
        """Noted here and looked at later: the door catches whatever a writer of markers raises."""
        metadata = self.world.committed_standing(effect.transactional_id)
        is_safe = (
            metadata is not None
            and metadata.state is (State.PREPARE_COMMIT if effect.is_commit else State.PREPARE_ABORT)
            and (metadata.producer_id, metadata.producer_epoch) == (effect.producer_id, effect.producer_epoch)
            and effect.partitions <= metadata.partitions
        )
        if not is_safe:
            self.told_too_early.append(effect)

    # What happens

    @rule(slot=st.integers(0, SLOTS - 1), goes_on=st.booleans())
    def start(self, slot: int, goes_on: bool) -> None:
        producer = self.producers[slot]
        if not producer.is_asking:
            producer.is_usable = False
            self.init(producer, goes_on and producer.producer_id != -1)

    @rule(slot=st.integers(0, SLOTS - 1), partition=st.sampled_from(PARTITIONS))
    def add(self, slot: int, partition: TopicPartition) -> None:
        producer = self.idle(slot)
        if producer is None:
            return
        data = Data(producer.producer_id, producer.producer_epoch, producer.transaction)

        def then(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                producer.added.add(partition)
                if producer.is_v2:
                    self.partitions.append(partition, data)
            elif error in LOST:
                producer.is_usable = False

        command = AddPartitions(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            partitions=[partition],
            is_v2=producer.is_v2,
        )
        self.ask(producer, command, then)

    @rule(slot=st.integers(0, SLOTS - 1), partition=st.sampled_from(PARTITIONS))
    def verify(self, slot: int, partition: TopicPartition) -> None:
        """How a producer of V1 writes: it has added the partition, and the partition asks whether that is so."""
        producer = self.idle(slot)
        if producer is None or producer.is_v2 or partition not in producer.added:
            return
        data = Data(producer.producer_id, producer.producer_epoch, producer.transaction)

        def then(errors: list[ErrorCode]) -> None:
            if errors == [ErrorCode.NONE]:
                self.partitions.append(partition, data)
            elif errors[0] in LOST:
                producer.is_usable = False

        command = VerifyPartitions(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            partitions=[partition],
        )
        self.ask(producer, command, then)

    @rule(slot=st.integers(0, SLOTS - 1), is_commit=st.booleans())
    def end_transaction(self, slot: int, is_commit: bool) -> None:
        producer = self.producers[slot]
        if producer.ending is None and not producer.added:
            self.add(slot, PARTITIONS[slot % len(PARTITIONS)])
        if producer.is_asking or not producer.is_usable or (producer.ending is None and not producer.added):
            return
        self.end(producer, is_commit if producer.ending is None else producer.ending)

    @rule(
        steps=st.lists(
            st.tuples(
                st.integers(0, SLOTS - 1),
                st.sampled_from(PARTITIONS),
                st.sampled_from((True, False, None)),
                st.booleans(),
            ),
            min_size=3,
            max_size=10,
        )
    )
    def work(self, steps: list[tuple[int, TopicPartition, bool | None, bool]]) -> None:
        """Several producers write and end transactions, while nothing else comes in between."""
        for slot, partition, end, has_markers in steps:
            self.add(slot, partition)
            self.verify(slot, partition)
            if end is not None:
                self.end_transaction(slot, end)
            if has_markers:
                self.write_markers(0, set())

    @rule(index=st.integers(0, 3), failed=st.sets(st.sampled_from(PARTITIONS), max_size=1))
    def write_markers(self, index: int, failed: set[TopicPartition]) -> None:
        if self.world.markers:
            effect, done = self.world.markers.pop(index % len(self.world.markers))
            for partition in effect.partitions - failed:
                self.partitions.mark(effect, partition)
            done(failed)

    @rule()
    def look(self) -> None:
        for transactional_id in "xyz":
            self.world.ask(DescribeTransaction(transactional_id=transactional_id))
        for key in self.world.transactions.shard_keys:
            self.world.ask(ListTransactions(transactional_id=key))

    @rule(milliseconds=st.sampled_from((1, 50, 100, 1_000, 4_000, 70_000)))
    def advance(self, milliseconds: int) -> None:
        self.world.timers.advance(milliseconds)

    @rule()
    def restart(self) -> None:
        self.world.log.release()
        self.world.restart()
        assert not any(producer.is_asking for producer in self.producers), "a restart left somebody waiting"
        self.wake_up()

    @rule(kept=st.integers(0, 3), written=st.sets(st.sampled_from(PARTITIONS)))
    def power_cut(self, kept: int, written: set[TopicPartition]) -> None:
        """Of what is not committed some is lost; of the markers that are under way some are there all the same."""
        self.life += 1
        for effect, _ in self.world.markers:
            for partition in effect.partitions & written:
                self.partitions.mark(effect, partition)
        self.world.log.lose(lambda count: min(kept, count))
        self.world.restart()
        for producer in self.producers:
            producer.is_asking = False
        self.wake_up()

    def wake_up(self) -> None:
        self.world.transactions.load()
        self.world.timers.advance(100)

    @rule(is_failing=st.booleans())
    def break_or_mend_the_disk(self, is_failing: bool) -> None:
        self.world.log.is_failing = is_failing

    @rule(is_holding=st.booleans())
    def hold_or_release_commits(self, is_holding: bool) -> None:
        if is_holding:
            self.world.log.is_holding = True
        else:
            self.world.log.release()

    @rule()
    def commits_take_too_long(self) -> None:
        self.world.log.release(KafkaError(ErrorCode.REQUEST_TIMED_OUT))

    # What is always true

    @invariant()
    def replay_gives_the_durable_state(self) -> None:
        assert self.world.durable() == self.world.replayed()

    @invariant()
    def partitions_are_told_nothing_that_a_power_cut_could_take_back(self) -> None:
        assert not self.told_too_early

    @invariant()
    def a_transaction_does_not_end_in_two_ways(self) -> None:
        for transaction, fates in self.partitions.fates().items():
            assert not fates >= {True, False}, "committed here, aborted there"
            if transaction in self.told:
                assert (not self.told[transaction]) not in fates, "it was told otherwise"

    @invariant()
    def every_shard_has_at_most_one_timer(self) -> None:
        assert self.world.timers.live_count() <= SHARD_COUNT + 1

    @invariant()
    def only_open_or_prepared_transactions_have_partitions(self) -> None:
        for metadata in self.world.durable().values():
            is_open = metadata.state is State.ONGOING or metadata.state.is_prepared
            assert bool(metadata.partitions) == is_open

    def teardown(self) -> None:
        """In the end everybody is answered, and every transaction has ended in every partition."""
        self.world.log.is_failing = False
        self.world.log.release()
        for _ in range(ROUNDS_MAX):
            while self.world.markers:
                self.write_markers(0, set())
            self.world.timers.advance(1_000)
        assert not any(producer.is_asking for producer in self.producers)
        assert self.world.transactions.waiting_count() == 0
        for metadata in self.world.durable().values():
            assert metadata.state is not State.ONGOING
            assert not metadata.state.is_prepared
        for transaction, fates in self.partitions.fates().items():
            assert len(fates) == 1
            assert fates != {None}, "readers wait for ever"
            assert self.told.get(transaction) in fates | {None}
        assert self.world.durable() == self.world.replayed()


TestRandomHistories = TransactionHistory.TestCase
TestRandomHistories.settings = settings(
    max_examples=examples(100), stateful_step_count=50, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
