"""Situations in which several tests of the core begin."""

from kwire.cluster.core.entries import Entry, Kind
from kwire.cluster.core.messages import SegmentId, Store
from kwire.cluster.core.policies import Gaps, Limits, Path, Policy
from kwire.cluster.core.quorum import Quorum
from tests.cluster.core.world import STREAM, World

ABC = ("A", "B", "C")
DEF = ("D", "E", "F")
MAJORITY = Policy(Quorum(3, 2))
FIRST = SegmentId(STREAM, 1)
# Each entry is sent in a message of its own.
ONE_EACH = Limits(batch_bytes=1)


def led_world(policy: Policy = MAJORITY, limits: Limits = ONE_EACH) -> World:
    """The client "old" leads with epoch 1; its segment is open on the stores A, B, ..., all of them sealed."""
    world = World([tuple("ABCDEF"[: policy.quorum.replicas])], policy, limits)
    world.elect("old")
    world.settle()
    return world


def two_copy_sets(path: Path = Path.SERIAL, segment_entries: int = 2) -> World:
    """A world whose odd segments are on A, B and C, and whose even ones are on D, E and F."""
    return World([DEF, ABC], Policy(Quorum(3, 2), path=path), Limits(batch_bytes=1, segment_entries=segment_entries))


def example_of_the_hole(gaps: Gaps) -> World:
    """Leader "old" has crashed. A has e(1), e(2) and e(3); B and C lack e(2). Nothing was acknowledged."""
    world = led_world(Policy(Quorum(3, 2), gaps))
    for payload, stores in ((b"one", "A,B,C"), (b"two", "A"), (b"three", "A,B,C")):
        world.append("old", payload)
        world.deliver_some(target=stores, kind="Store")
        world.bag.clear()
    del world.writers["old"]
    assert world.acked["old"] == []
    return world


def recover_hearing(world: World, *stores: str, client: str = "new") -> None:
    """Elect a client that recovers with the help of these stores only. Messages from and to all others are lost."""
    names = ",".join(stores)
    world.elect(client)
    for _ in range(12):
        while world.deliver_some(target=names) or world.deliver_some(source=names):
            pass
        world.bag.clear()
        world.tick(world.limits.retry_ms)
    world.bag.clear()


def content(world: World, store: str, segment: SegmentId = FIRST) -> list[Entry]:
    """The entries that are on the disk of a store."""
    replica = world.storage[store].replicas.get(segment)
    return [] if replica is None else [replica.entries[index] for index in sorted(replica.entries)]


def events(world: World, store: str, segment: SegmentId = FIRST) -> list[bytes]:
    return [entry.payload for entry in content(world, store, segment) if entry.kind is Kind.EVENT]


def read_all(world: World, reader: str) -> list[bytes | None]:
    """What a new reader gets from the beginning; None is a hole."""
    world.start_reader(reader)
    world.read()
    del world.readers[reader]
    return [one.payload for one in world.delivered[reader]]


def sent_indexes(world: World, store: str) -> list[int]:
    """The indexes of the entries that are under way to a store, in the order in which they were sent."""
    bodies = [message.body for message in world.bag if message.target == store]
    return [entry.index for body in bodies if isinstance(body, Store) for entry in body.entries]
