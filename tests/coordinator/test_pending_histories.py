"""Whatever plain commits, transactions, deletions, failures and restarts do, what counts is what Kafka's rule says.

The rule is restated here in the plainest way: every record has its number in the log, and of all that is committed for
a partition the highest number counts.
"""

from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kwire.coordinator.group.commands import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    FetchAnswer,
    FetchOffsets,
    OffsetToCommit,
    PartitionOfTopic,
    TopicToFetch,
)
from kwire.coordinator.group.records import OffsetCommitRecord, decode_record
from kwire.coordinator.log_records import PendingRecord, ProducerIdAndEpoch, TransactionEnd
from kwire.errors import ErrorCode
from tests.coordinator.compaction import compacted
from tests.coordinator.world import World
from tests.support.effort import examples

GROUPS = ("g", "h")
PARTITIONS = 2
PRODUCERS = 3
TOPIC = "t"

Where = tuple[str, int]


class Numbered(NamedTuple):
    number: int
    offset: int


class Naive:
    """What the log says, read from its beginning."""

    def __init__(self, world: World) -> None:
        self.committed: dict[Where, Numbered] = {}
        # By shard and producer.
        self.pending: dict[tuple[int, int], dict[Where, Numbered]] = {}
        for shard, log in world.log.shards.items():
            for number, one in enumerate(log):
                if isinstance(one, TransactionEnd):
                    ended = self.pending.pop((shard, one.producer_id), {})
                    for where, found in ended.items():
                        if one.is_commit and found > self.committed.get(where, Numbered(-1, -1)):
                            self.committed[where] = found
                elif isinstance(one, PendingRecord):
                    where, offset = _read(one.key, one.value)
                    assert offset is not None
                    self.pending.setdefault((shard, one.producer_id), {})[where] = Numbered(number, offset)
                else:
                    self._plain(number, *_read(*one))

    def _plain(self, number: int, where: Where, offset: int | None) -> None:
        if offset is not None:
            self.committed[where] = Numbered(number, offset)
            return
        self.committed.pop(where, None)
        for of_producer in self.pending.values():
            of_producer.pop(where, None)

    def is_pending(self, where: Where) -> bool:
        return any(where in of_producer for of_producer in self.pending.values())


def _read(key: bytes, value: bytes | None) -> tuple[Where, int | None]:
    record = decode_record(key, value)
    assert isinstance(record, OffsetCommitRecord)
    return (record.key.group, record.key.partition), None if record.value is None else record.value.offset


class PendingHistory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.offset = 0
        self.epochs = [0] * PRODUCERS

    def commit(self, group_id: str, partitions: set[int], transaction: ProducerIdAndEpoch | None) -> list[ErrorCode]:
        self.offset += 1
        offsets = [OffsetToCommit(TOPIC, partition, self.offset) for partition in sorted(partitions)]
        errors: list[ErrorCode] = []
        self.world.groups.submit(
            CommitOffsets(group_id=group_id, transaction=transaction, offsets=offsets), errors.extend
        )
        return errors

    @rule(group_id=st.sampled_from(GROUPS), partitions=st.sets(st.integers(0, PARTITIONS - 1), min_size=1))
    def commit_plainly(self, group_id: str, partitions: set[int]) -> None:
        self.commit(group_id, partitions, None)

    @rule(
        group_id=st.sampled_from(GROUPS),
        partitions=st.sets(st.integers(0, PARTITIONS - 1), min_size=1),
        producer=st.integers(0, PRODUCERS - 1),
    )
    def commit_in_transaction(self, group_id: str, partitions: set[int], producer: int) -> None:
        self.commit(group_id, partitions, ProducerIdAndEpoch(producer, self.epochs[producer]))

    @rule(group_id=st.sampled_from(GROUPS), producer=st.integers(0, PRODUCERS - 1))
    def old_self_is_fenced(self, group_id: str, producer: int) -> None:
        if self.epochs[producer] and not self.world.log.is_failing and not self.world.log.is_holding:
            appended_count = self.world.log.count()
            errors = self.commit(group_id, {0}, ProducerIdAndEpoch(producer, self.epochs[producer] - 1))
            assert errors == [ErrorCode.INVALID_PRODUCER_EPOCH] or self.is_unseen(group_id, producer)
            assert self.world.log.count() == appended_count or self.is_unseen(group_id, producer)

    def is_unseen(self, group_id: str, producer: int) -> bool:
        """The shard of the group has not heard of the producer's newest epoch."""
        known = self.world.log.epoch_of(self.world.groups.shard_of(group_id), producer)
        return known < self.epochs[producer]

    @rule(producer=st.integers(0, PRODUCERS - 1), is_commit=st.booleans(), bumps=st.booleans())
    def end(self, producer: int, is_commit: bool, bumps: bool) -> None:
        """In every shard, as a coordinator does that knows where the transaction has been."""
        self.epochs[producer] += bumps
        for shard in sorted({self.world.groups.shard_of(group_id) for group_id in GROUPS}):
            told: list[object] = []
            self.world.groups.end_transaction(shard, producer, self.epochs[producer], 0, is_commit, told.append)
            assert len(told) == (0 if self.world.log.is_holding and not self.world.log.is_failing else 1)

    @rule(group_id=st.sampled_from(GROUPS), partition=st.integers(0, PARTITIONS - 1))
    def delete_offsets(self, group_id: str, partition: int) -> None:
        command = DeleteOffsets(group_id=group_id, partitions=[PartitionOfTopic(TOPIC, partition)])
        self.world.groups.submit(command, lambda _: None)

    @rule(group_id=st.sampled_from(GROUPS))
    def delete_group(self, group_id: str) -> None:
        self.world.groups.submit(DeleteGroup(group_id=group_id), lambda _: None)

    @rule()
    def restart(self) -> None:
        self.world.log.release()
        self.world.restart()

    @rule()
    def compact(self) -> None:
        """What a start finds afterwards is what was known."""
        self.world.log.release()
        self.world.log.shards = {shard: compacted(log) for shard, log in self.world.log.shards.items()}
        self.world.restart()

    @rule(is_failing=st.booleans())
    def break_or_mend_the_disk(self, is_failing: bool) -> None:
        self.world.log.is_failing = is_failing

    @rule(is_holding=st.booleans())
    def hold_or_release_commits(self, is_holding: bool) -> None:
        if is_holding:
            self.world.log.is_holding = True
        else:
            self.world.log.release()

    @invariant()
    def a_start_would_find_the_same(self) -> None:
        durable = self.world.durable()
        if durable:
            replayed = self.world.replayed()
            assert all(replayed[name] == found for name, found in durable.items())

    @invariant()
    def compaction_changes_nothing(self) -> None:
        before, logs = self.world.replayed(), self.world.log.shards
        self.world.log.shards = {shard: compacted(log) for shard, log in logs.items()}
        try:
            assert self.world.replayed() == before
        finally:
            self.world.log.shards = logs

    @invariant()
    def fetch_tells_what_the_log_says(self) -> None:
        if self.world.log.is_holding:
            return
        naive = Naive(self.world)
        asked = [TopicToFetch(TOPIC, range(PARTITIONS))]
        for group_id in GROUPS:
            for require_stable in (False, True):
                answers: list[FetchAnswer] = []
                command = FetchOffsets(group_id=group_id, topics=asked, require_stable=require_stable)
                self.world.groups.submit(command, answers.append)
                ((_, fetched),) = ((answer.error, answer.topics[0]) for answer in answers)
                for partition, found in fetched.offsets:
                    where = (group_id, partition)
                    assert (partition in fetched.unstable) == (require_stable and naive.is_pending(where))
                    if partition in fetched.unstable:
                        assert found is None
                    else:
                        expected = naive.committed.get(where)
                        assert (found and found.offset) == (expected and expected.offset)

    def teardown(self) -> None:
        """When every transaction has ended nothing is pending, and nothing of it is remembered."""
        self.world.log.is_failing = False
        self.world.log.release()
        for producer in range(PRODUCERS):
            self.end(producer, True, False)
        for shard in self.world.groups.shards():
            assert not shard.offsets.pending
            assert not shard.offsets.pending.producer_ids()
        for group_id in GROUPS:
            self.delete_group(group_id)
        for shard in self.world.groups.shards():
            assert shard.offsets.is_empty
            assert not shard.offsets.topics()


class Burst(NamedTuple):
    """A commit of a turn with several commands; before it the disk may break or be mended, or something be read."""

    group_id: str
    partitions: frozenset[int]
    producer: int | None
    is_failing: bool
    reads_before: bool


BURSTS = st.builds(
    Burst,
    st.sampled_from(GROUPS),
    st.frozensets(st.integers(0, PARTITIONS - 1), min_size=1),
    st.sampled_from((None, None, None, *range(PRODUCERS))),
    st.sampled_from((False, False, False, True)),
    st.sampled_from((False, False, False, True)),
)


class TurnHistory(PendingHistory):
    """The same with turns: the commits of a burst share their appends, and no other turn has more than one."""

    def __init__(self) -> None:
        super().__init__()
        self.world.with_turns()

    @rule(bursts=st.lists(BURSTS, min_size=2, max_size=8), largest=st.integers(2, 6))
    def commit_in_one_turn(self, bursts: list[Burst], largest: int) -> None:
        self.world.end_turn()
        self.world.log.largest = largest
        appended_count = len(self.world.log.appended)
        answers: list[tuple[Burst, int, list[ErrorCode]]] = []
        for one in bursts:
            self.world.log.is_failing = one.is_failing
            if one.reads_before:
                self.world.groups.submit(FetchOffsets(group_id=one.group_id, topics=None), lambda _: None)
            transaction = None if one.producer is None else ProducerIdAndEpoch(one.producer, self.epochs[one.producer])
            errors = self.commit(one.group_id, set(one.partitions), transaction)
            answers.append((one, self.offset, errors))
        self.world.end_turn()
        if self.world.log.is_holding:
            self.world.log.release()
        # Acknowledged is what was appended, in the order in which it came to each shard.
        stored: dict[int, list[tuple[Where, int | None]]] = {}
        for record in self.world.log.appended[appended_count:]:
            assert not isinstance(record, TransactionEnd)
            where, offset = _read(record.key, record.value) if isinstance(record, PendingRecord) else _read(*record)
            stored.setdefault(self.world.groups.shard_of(where[0]), []).append((where, offset))
        acknowledged: dict[int, list[tuple[Where, int | None]]] = {}
        for one, offset, errors in answers:
            assert len(errors) == len(one.partitions), "every commit is answered once"
            if errors[0] is ErrorCode.NONE:
                of_shard = acknowledged.setdefault(self.world.groups.shard_of(one.group_id), [])
                of_shard += [((one.group_id, partition), offset) for partition in sorted(one.partitions)]
        assert stored == acknowledged

    @invariant()
    def fetch_tells_what_the_log_says(self) -> None:
        self.world.end_turn()
        super().fetch_tells_what_the_log_says()


_SETTINGS = settings(
    max_examples=examples(80), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
PendingHistory.TestCase.settings = _SETTINGS
TestPendingHistory = PendingHistory.TestCase
TurnHistory.TestCase.settings = _SETTINGS
TestTurnHistory = TurnHistory.TestCase
