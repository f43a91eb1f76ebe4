"""What transactions do, for every stock client that has them: a test file per client inherits these tests."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product

import pytest

from tests.support.clients import DEADLINE_S, Topics, produce_values, unique_name
from tests.support.server import Broker, KwireProcess, wait_until
from tests.support.transaction_states import KillAtAppend, log_path_of, state_log_of, states_told, wait_for_state
from tests.support.transactional_clients.interface import Consumer, Family, Place, Producer, Record, Refused

# A transaction is abandoned after so long in the test of it.
SHORT_TIMEOUT_MS = 1_500
# Markers go to every partition, so that many make the time between the two steps of an end longer.
WIDE_PARTITIONS = 10
# A kill that came too late is tried again.
KILL_ATTEMPTS_MAX = 5

Connect = Callable[[str], Family]


def numbered(word: str, count: int) -> list[str]:
    return [f"{word}-{number}" for number in range(count)]


def send_all(producer: Producer, topic: str, values: list[str], partition: int = 0) -> None:
    """Each is stored when this returns, in this order."""
    for value in values:
        producer.send(topic, value, partition)
    producer.flush()


def commit_all(producer: Producer, topic: str, values: list[str]) -> None:
    producer.begin()
    send_all(producer, topic, values)
    producer.commit()


def abort_all(producer: Producer, topic: str, values: list[str]) -> None:
    producer.begin()
    send_all(producer, topic, values)
    producer.abort()


def take(consumer: Consumer, count: int) -> list[Record]:
    """At least so many records."""
    records: list[Record] = []

    def is_enough() -> bool:
        records.extend(consumer.poll())
        return len(records) >= count

    wait_until(is_enough, f"{count} records", DEADLINE_S)
    return records


def assert_reads(
    family: Family, topic: str, expected: list[str], partition: int = 0, *, is_committed: bool = True
) -> None:
    """These are read, and then the client itself finds that it has reached the end.

    A transaction that was just committed may be told of before it can be read, so the first end is not always the last.
    """
    reader = family.reader(Place(topic, partition), is_committed=is_committed)
    values: list[str] = []

    def is_done() -> bool:
        values.extend(record.value for record in reader.poll())
        return len(values) >= len(expected) and reader.is_at_end()

    try:
        wait_until(is_done, f"{topic} is read to its end", DEADLINE_S)
    except AssertionError:
        assert values == expected, "not read to the end"
        raise
    finally:
        reader.close()
    assert values == expected


def assert_finds_nothing(reader: Consumer) -> None:
    """It reaches its end, which is before the first transaction that is open, and stays there."""
    found: list[Record] = []

    def is_at_end() -> bool:
        found.extend(reader.poll())
        return bool(found) or reader.is_at_end()

    wait_until(is_at_end, "the reader is at its end", DEADLINE_S)
    found.extend(reader.poll())
    assert found == []


def assert_refused(call: Callable[[], None]) -> str:
    """The refusal in the client's words, in small letters."""
    with pytest.raises(Refused) as caught:
        call()
    return str(caught.value).lower()


class TransactionTests:
    """A file that inherits these has a fixture `connect`, from an address to a family of clients."""

    # What is refused when a producer commits a transaction that the server has aborted.
    word_of_an_abandoned_commit = "fenced"

    @pytest.fixture
    def families(self, connect: Connect) -> Iterator[Connect]:
        """Makes families that end with the test."""
        made: list[Family] = []

        def connected(bootstrap: str) -> Family:
            made.append(connect(bootstrap))
            return made[-1]

        yield connected
        for family in made:
            family.close()
        # What a client leaves behind is found here, not in some other test.
        made.clear()
        gc.collect()

    @pytest.fixture
    def family(self, families: Connect, broker: Broker) -> Family:
        return families(broker.bootstrap)

    def test_what_is_committed_is_read_and_what_is_aborted_is_not(self, family: Family, topics: Topics) -> None:
        topic = topics.create("txn-ends")
        producer = family.producer(unique_name("txn"))
        commit_all(producer, topic, numbered("one", 5))
        abort_all(producer, topic, numbered("two", 5))
        commit_all(producer, topic, numbered("three", 5))
        assert_reads(family, topic, numbered("one", 5) + numbered("three", 5))
        everything = numbered("one", 5) + numbered("two", 5) + numbered("three", 5)
        assert_reads(family, topic, everything, is_committed=False)

    def test_a_transaction_is_read_when_it_ends_and_not_before(self, family: Family, topics: Topics) -> None:
        topic = topics.create("txn-open")
        producer = family.producer(unique_name("txn"))
        reader = family.reader(Place(topic, 0))
        producer.begin()
        send_all(producer, topic, numbered("early", 3))
        assert_reads(family, topic, numbered("early", 3), is_committed=False)
        assert_finds_nothing(reader)
        send_all(producer, topic, numbered("late", 3))
        assert_finds_nothing(reader)
        producer.commit()
        assert [record.value for record in take(reader, 6)] == numbered("early", 3) + numbered("late", 3)

    def test_one_transaction_spans_topics_and_partitions(self, family: Family, topics: Topics) -> None:
        wide, other = topics.create("txn-wide", partitions=3), topics.create("txn-other")
        producer = family.producer(unique_name("txn"))
        places = [(wide, 0), (wide, 1), (wide, 2), (other, 0)]
        for word, end in (("kept", producer.commit), ("dropped", producer.abort), ("last", producer.commit)):
            producer.begin()
            for topic, partition in places:
                producer.send(topic, word, partition)
            producer.flush()
            end()
        for topic, partition in places:
            assert_reads(family, topic, ["kept", "last"], partition)

    def test_a_zombie_is_fenced(self, family: Family, topics: Topics) -> None:
        topic, transactional_id = topics.create("txn-zombie"), unique_name("txn")
        zombie = family.producer(transactional_id)
        commit_all(zombie, topic, ["before"])
        zombie.begin()
        send_all(zombie, topic, ["zombie"])
        heir = family.producer(transactional_id)
        assert "fenced" in assert_refused(zombie.commit)
        commit_all(heir, topic, ["heir"])

        def begun_again() -> None:
            zombie.abort()
            commit_all(zombie, topic, ["zombie-again"])

        assert_refused(begun_again)
        commit_all(heir, topic, ["heir-again"])
        assert_reads(family, topic, ["before", "heir", "heir-again"])

    def test_an_abandoned_transaction_is_aborted_and_readers_get_on(
        self, family: Family, topics: Topics, broker: Broker
    ) -> None:
        topic, transactional_id = topics.create("txn-abandoned"), unique_name("txn")
        producer = family.producer(transactional_id, SHORT_TIMEOUT_MS)
        reader = family.reader(Place(topic, 0))
        producer.begin()
        send_all(producer, topic, ["abandoned"])
        produce_values(broker.bootstrap, topic, [b"plain"])
        # It stands behind the abandoned one: nobody may read it before that is decided.
        assert [record.value for record in take(reader, 1)] == ["plain"]
        wait_for_state(broker.bootstrap, transactional_id, "CompleteAbort")
        assert self.word_of_an_abandoned_commit in assert_refused(producer.commit)
        heir = family.producer(transactional_id)
        commit_all(heir, topic, ["heir"])
        assert_reads(family, topic, ["plain", "heir"])

    def test_consuming_and_producing_in_one_transaction_counts_once(self, family: Family, topics: Topics) -> None:
        origin, target, group = topics.create("txn-from"), topics.create("txn-to"), unique_name("txn-group")
        feeder = family.producer(unique_name("txn"))
        commit_all(feeder, origin, numbered("a", 10))
        abort_all(feeder, origin, numbered("x", 4))
        commit_all(feeder, origin, numbered("b", 10))
        transactional_id = unique_name("txn")
        producer = family.producer(transactional_id)

        def transform(count: int, end: Callable[[], None]) -> list[str]:
            """One member of the group, one transaction, and whom it worked on."""
            with joined(family, origin, group) as member:
                records = take(member, count)[:count]
                producer.begin()
                for record in records:
                    producer.send(target, record.value.upper())
                producer.send_offsets(member, {Place(origin, 0): records[-1].offset + 1})
                end()
            return [record.value for record in records]

        assert transform(6, producer.commit) == numbered("a", 6)
        assert transform(6, producer.abort) == [*numbered("a", 10)[6:], *numbered("b", 2)]
        # What was aborted comes again, offsets and all.
        assert transform(6, producer.commit) == [*numbered("a", 10)[6:], *numbered("b", 2)]
        assert transform(8, producer.commit) == numbered("b", 10)[2:]
        assert_reads(family, target, [value.upper() for value in numbered("a", 10) + numbered("b", 10)])

    def test_a_new_member_waits_for_offsets_of_an_open_transaction(self, family: Family, topics: Topics) -> None:
        if not family.waits_for_stable_offsets:
            return
        origin, target, group = topics.create("txn-from"), topics.create("txn-to"), unique_name("txn-group")
        feeder = family.producer(unique_name("txn"))
        commit_all(feeder, origin, numbered("a", 10))
        producer = family.producer(unique_name("txn"))
        with joined(family, origin, group) as member:
            records = take(member, 6)[:6]
            producer.begin()
            send_all(producer, target, [record.value for record in records])
            producer.send_offsets(member, {Place(origin, 0): records[-1].offset + 1})
        with joined(family, origin, group) as member:
            for _ in range(3):
                assert member.poll() == []
            producer.commit()
            assert [record.value for record in take(member, 4)] == numbered("a", 10)[6:]

    def test_two_producers_share_a_partition(self, family: Family, topics: Topics) -> None:
        topic = topics.create("txn-shared")
        other_id = unique_name("txn")
        one, other = family.producer(unique_name("txn")), family.producer(other_id)
        reader = family.reader(Place(topic, 0))
        one.begin()
        other.begin()
        for number in range(3):
            send_all(one, topic, [f"one-{number}"])
            send_all(other, topic, [f"other-{number}"])
        # The second began later, and what it committed waits for the first.
        other.commit()
        wait_for_state(family.bootstrap, other_id, "CompleteCommit")
        assert_finds_nothing(reader)
        send_all(one, topic, ["one-3"])
        one.abort()
        assert [record.value for record in take(reader, 3)] == numbered("other", 3)
        # The other way round: the one that began later is aborted while the first is open.
        one.begin()
        other.begin()
        for number in range(3):
            send_all(one, topic, [f"first-{number}"])
            send_all(other, topic, [f"second-{number}"])
        other.abort()
        commit_all(other, topic, ["third"])
        one.commit()
        expected = ["first-0", "first-1", "first-2", "third"]
        assert [record.value for record in take(reader, 4)] == expected
        assert_reads(family, topic, numbered("other", 3) + expected)

    def test_a_reader_comes_to_the_end_of_a_log_that_ends_aborted(self, family: Family, topics: Topics) -> None:
        topic, only_aborted = topics.create("txn-tail"), topics.create("txn-tail")
        transactional_id = unique_name("txn")
        producer = family.producer(transactional_id)
        commit_all(producer, topic, numbered("kept", 3))
        for number in range(3):
            abort_all(producer, topic, numbered(f"dropped-{number}", 4))
        abort_all(producer, only_aborted, numbered("dropped", 4))
        wait_for_state(family.bootstrap, transactional_id, "CompleteAbort")
        assert_reads(family, topic, numbered("kept", 3))
        assert_reads(family, only_aborted, [])

    def test_a_killed_server_finds_every_state_again(self, killable: KwireProcess, families: Connect) -> None:
        process = killable
        family = families(process.bootstrap)
        topic = new_topic(process)
        states = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")
        ids = {state: unique_name(state) for state in states}
        producers = {state: family.producer(ids[state]) for state in states}
        commit_all(producers["CompleteCommit"], topic, ["committed"])
        abort_all(producers["CompleteAbort"], topic, ["aborted"])
        # Last in the log: what the others committed can be read now, and this cannot.
        producers["Ongoing"].begin()
        send_all(producers["Ongoing"], topic, ["ongoing"])
        for state in states:
            wait_for_state(process.bootstrap, ids[state], state)
        process.kill()
        process.restart()
        assert states_told(process.bootstrap, ids.values()) == {ids[state]: state for state in states}
        assert_reads(family, topic, ["committed"])
        # Everybody goes on with the client it had.
        send_all(producers["Ongoing"], topic, ["ongoing-still"])
        producers["Ongoing"].commit()
        for state in ("Empty", "CompleteCommit", "CompleteAbort"):
            commit_all(producers[state], topic, [f"after-{state}"])
        assert_reads(
            family,
            topic,
            ["committed", "ongoing", "ongoing-still", "after-Empty", "after-CompleteCommit", "after-CompleteAbort"],
        )

    def test_a_server_killed_while_it_ends_a_transaction_ends_it_when_it_is_back(
        self, killable: KwireProcess, families: Connect
    ) -> None:
        process = killable
        family = families(process.bootstrap)
        topic, transactional_id = new_topic(process, WIDE_PARTITIONS), unique_name("txn")
        producer = family.producer(transactional_id)
        committed: list[str] = []
        for is_commit, has_markers in product((True, False), (False, True)):
            prepared, complete = ("PrepareCommit", "CompleteCommit") if is_commit else ("PrepareAbort", "CompleteAbort")
            for attempt in range(KILL_ATTEMPTS_MAX):
                value = f"{prepared}-{has_markers}-{attempt}"
                producer.begin()
                for partition in range(WIDE_PARTITIONS):
                    producer.send(topic, value, partition)
                producer.flush()
                if is_commit:
                    committed.append(value)
                # The kill comes when the decision is in the log, or when the first of the markers is.
                log_path = (
                    log_path_of(process.data_dir, topic, 0)
                    if has_markers
                    else state_log_of(process.data_dir, transactional_id)
                )
                killer = KillAtAppend(process, log_path)
                states = killer.around(producer.commit if is_commit else producer.abort)
                if states[transactional_id] == prepared:
                    break
            else:
                raise AssertionError(f"no kill came between {prepared} and {complete}")
            wait_for_state(process.bootstrap, transactional_id, complete)
        commit_all(producer, topic, ["after"])
        assert_reads(family, topic, [*committed, "after"])
        for partition in range(1, WIDE_PARTITIONS, 3):
            assert_reads(family, topic, committed, partition)


def new_topic(process: KwireProcess, partitions: int = 1) -> str:
    topics = Topics(process.bootstrap)
    try:
        return topics.create("txn-restart", partitions)
    finally:
        topics.close()


@contextmanager
def joined(family: Family, topic: str, group: str) -> Iterator[Consumer]:
    """A member that leaves its group in the end."""
    member = family.member(topic, group)
    try:
        yield member
    finally:
        member.close()
