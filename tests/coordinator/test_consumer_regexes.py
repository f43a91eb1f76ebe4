"""The topic search: in chunks, shared by groups with the same expression, at one catalogue revision."""

from kwire.coordinator.group.consumer.commands import ConsumerHeartbeat, ConsumerHeartbeatAnswer
from kwire.coordinator.group.consumer.regexes import RESULTS_MAX, WORK_PER_CHUNK, WORK_PER_NAME, RegexResolver
from kwire.errors import ErrorCode
from tests.coordinator.world import MemoryTopics, World

# More than one turn looks at.
MANY = 3 * WORK_PER_CHUNK // WORK_PER_NAME


def topics_named(*names: str) -> MemoryTopics:
    topics = MemoryTopics()
    for name in names:
        topics.put(name, 1)
    return topics


def test_few_topics_are_found_in_one_turn() -> None:
    resolution = RegexResolver(topics_named("app-1", "app-2", "web")).begin({"app-.*", "web"})
    assert resolution.advance()
    assert resolution.topics == {"app-.*": {"app-1", "app-2"}, "web": {"web"}}


def test_many_topics_take_several_turns() -> None:
    topics = topics_named(*(f"t-{number}" for number in range(MANY)))
    resolution = RegexResolver(topics).begin({"t-1.*", ".*0"})
    turns = 1
    while not resolution.advance():
        turns += 1
        assert turns < 100
    assert turns > 5
    assert resolution.topics["t-1.*"] == {name for name in topics.names() if name.startswith("t-1")}
    assert resolution.topics[".*0"] == {name for name in topics.names() if name.endswith("0")}


def test_search_sees_the_topics_of_its_beginning() -> None:
    topics = topics_named(*(f"t-{number}" for number in range(MANY)))
    resolver = RegexResolver(topics)
    resolution = resolver.begin({".*"})
    assert not resolution.advance()
    topics.put("new", 1)
    while not resolution.advance():
        pass
    assert "new" not in resolution.topics[".*"]
    assert resolution.revision != topics.revision
    # What was found is old, so nobody else is told.
    resolver.cache_result(resolution)
    again = resolver.begin({"new"})
    assert not again.advance() or "new" in again.topics["new"]


def test_what_was_found_is_kept_for_others() -> None:
    topics = topics_named(*(f"t-{number}" for number in range(MANY)))
    resolver = RegexResolver(topics)
    first = resolver.begin({".*7"})
    while not first.advance():
        pass
    resolver.cache_result(first)
    assert resolver.begin({".*7"}).is_done
    assert not resolver.begin({".*8"}).is_done
    topics.put("one-more-7", 1)
    assert not resolver.begin({".*7"}).is_done


def test_kept_results_are_bounded() -> None:
    resolver = RegexResolver(topics_named("a"))
    for number in range(3 * RESULTS_MAX):
        resolution = resolver.begin({f"a{number}"})
        assert resolution.advance()
        resolver.cache_result(resolution)
        assert len(resolver._results) <= RESULTS_MAX


def test_expression_that_is_none_means_no_topic() -> None:
    """It may stand in a log that another server has written."""
    resolution = RegexResolver(topics_named("a")).begin({"(?=a)", "a"})
    assert resolution.advance()
    assert resolution.topics == {"(?=a)": frozenset(), "a": {"a"}}


def test_search_among_many_topics_does_not_hold_up_a_join() -> None:
    world = World().with_topics()
    for number in range(MANY):
        world.topics.put(f"t-{number}", 1)
    answers: list[ConsumerHeartbeatAnswer] = []

    def beat(epoch: int, **more: object) -> ConsumerHeartbeatAnswer:
        command = ConsumerHeartbeat(group_id="g", member_id="m", member_epoch=epoch, **more)  # type: ignore[arg-type]
        world.groups.submit(command, answers.append)
        return answers[-1]

    joined = beat(0, rebalance_timeout_ms=1000, owned={}, subscribed_topic_regex="t-1?5")
    assert joined.error is ErrorCode.NONE
    assert joined.assignment == {}
    assert joined.member_epoch == 1
    assert beat(1).assignment is None
    world.timers.advance(1_000)
    # Found meanwhile; the next heartbeat brings it.
    later = beat(1)
    assert later.assignment is not None
    names = {world.topics.name_of(topic_id) for topic_id in later.assignment}
    assert names == {"t-5", "t-15"}
    assert later.member_epoch == 2
    assert world.durable() == world.replayed()
