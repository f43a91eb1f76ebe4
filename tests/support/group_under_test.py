"""A consumer group at work, and what must be true of every one of them, whatever client its members are.

Members are processes of one family of clients; records come all the time. When the work is done, every record was
processed, and what the server stored of the group's commits never went backwards.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.support.clients import Topics, unique_name
from tests.support.commit_history import commit_history
from tests.support.group_feed import GroupFeed
from tests.support.group_member import GroupMember
from tests.support.server import wait_until

PARTITIONS = 6
# Tests wait for the end of a session, so it is shorter than the 6 s that Kafka allows by default: test servers have a
# lower `group.min.session.timeout.ms`.
SESSION_TIMEOUT_MS = 2_000
HEARTBEAT_INTERVAL_MS = 300
# A member starts, joins and gets its share within this; a busy machine is slow.
SHARE_TIMEOUT_S = 40.0
WORK_TIMEOUT_S = 40.0


class GroupUnderTest:
    """Starts members, waits for what they should own, and judges the work at the end."""

    def __init__(self, bootstrap: str, family: str, directory: Path, **settings: str) -> None:
        """`settings` are those of the client, with underscores for dots."""
        self.bootstrap = bootstrap
        self.family = family
        self.directory = directory
        self.group = unique_name(f"group-of-{family}")
        topics = Topics(bootstrap)
        try:
            self.topic = topics.create(f"work-of-{family}", partitions=PARTITIONS)
        finally:
            topics.close()
        self.settings = {
            "bootstrap.servers": bootstrap,
            "group.id": self.group,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        if settings.get("group_protocol") != "consumer":
            self.settings.setdefault("session.timeout.ms", str(SESSION_TIMEOUT_MS))
            self.settings.setdefault("heartbeat.interval.ms", str(HEARTBEAT_INTERVAL_MS))
        self.members: list[GroupMember] = []
        self.feed = GroupFeed(bootstrap, self.topic, PARTITIONS)

    def __enter__(self) -> "GroupUnderTest":
        self.feed.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.feed.__exit__(kind, error, trace)
        for member in self.members:
            member.kill()
            if error is not None:
                print(member.story())

    def start(self, **settings: str) -> GroupMember:
        """One more member, with settings of its own."""
        own = {name.replace("_", "."): value for name, value in settings.items()}
        log_path = self.directory / f"{self.group}-{len(self.members)}.log"
        member = GroupMember(self.family, self.topic, {**self.settings, **own}, log_path)
        self.members.append(member)
        return member

    def wait_until_shared(self, *members: GroupMember, timeout_s: float = SHARE_TIMEOUT_S) -> None:
        """Wait until these members own all partitions, equally many each."""
        share = PARTITIONS // len(members)

        def is_shared() -> bool:
            gone = [member.name for member in members if not member.is_running]
            assert gone == [], f"ended by themselves: {gone}"
            owned = [partition for member in members for partition in member.owned]
            return sorted(owned) == list(range(PARTITIONS)) and all(len(member.owned) == share for member in members)

        wait_until(is_shared, f"{len(members)} members own {share} partitions each", timeout_s)

    def wait_until_all_commit(self, *members: GroupMember, timeout_s: float = WORK_TIMEOUT_S) -> None:
        """Until each of these, who own all partitions, has had another commit acknowledged, and each partition too."""
        marks = {member: len(member.commits) for member in members}
        wait_until(lambda: self.have_all_committed(marks), "every member commits, and every partition", timeout_s)

    def have_all_committed(self, marks: Mapping[GroupMember, int]) -> bool:
        """Whether commits have come since, from each member and for each partition."""
        new = [[partition for partition, _ in member.commits[mark:]] for member, mark in marks.items()]
        return all(new) and len({partition for partitions in new for partition in partitions}) == PARTITIONS

    def acknowledged(self) -> dict[int, int]:
        """The highest commit of each partition that any member was told is stored, also one that is gone."""
        highest = dict.fromkeys(range(PARTITIONS), 0)
        for member in self.members:
            for partition, offset in list(member.commits):
                highest[partition] = max(highest[partition], offset)
        return highest

    def finish(self) -> None:
        """Stop the feed, let the members that run do the rest, and judge."""
        ends = self.feed.stop()

        wait_until(lambda: self.acknowledged() == ends, f"everything is committed: {ends}", WORK_TIMEOUT_S)
        for member in self.members:
            if member.is_running:
                member.leave()
        self.check(ends)

    def check(self, ends: dict[int, int]) -> None:
        history = commit_history(self.bootstrap, self.group, self.topic)
        assert {partition: offsets[-1] for partition, offsets in history.items()} == ends
        for partition, end in ends.items():
            processed = set().union(*(member.processed.get(partition, set()) for member in self.members))
            assert processed == set(range(end)), f"partition {partition}: missing or never sent"
            offsets = history[partition]
            assert offsets == sorted(offsets), f"partition {partition} went backwards: {offsets}"
            acknowledged = {
                offset for member in self.members for number, offset in member.commits if number == partition
            }
            assert acknowledged <= set(offsets), f"partition {partition}: an acknowledged commit is lost"
        counted = sum(map(len, history.values()))
        refused = sum(len(member.refusals) for member in self.members)
        print(
            f"{self.group}: {sum(ends.values())} records processed, {counted} commits, none lost, none backwards,"
            f" {refused} refused"
        )
