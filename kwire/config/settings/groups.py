"""Broker settings of the newer group protocols: consumer (KIP-848), share and streams groups.

Each kind of group has a value for all groups, and bounds for what one group may set instead (`kwire/group_config.py`).
Share and streams groups are not served yet, so their rows have no effect beyond those bounds.
"""

from kwire.config.setting import INT_MAX, Kind, Rule, Setting, SettingValue, at_least, between

MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


def _assignors_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    if value and all(entry in ("uniform", "range") for entry in value):
        return None
    return "Expected one or more of uniform, range"


def _migration_policy_problem(value: SettingValue) -> str | None:
    """Kafka takes it in any case."""
    assert isinstance(value, str)
    return None if value.lower() in MIGRATION_POLICIES else f"String must be one of: {', '.join(MIGRATION_POLICIES)}"


def _bounded(
    kind: str,
    what: str,
    default: int,
    least: int,
    most: int,
    meaning: str,
    floor: int,
    *,
    has_effect: bool = False,
    is_dynamic: bool = False,
) -> tuple[Setting, ...]:
    def row(name: str, value: int, documentation: str, *, is_dynamic: bool = False) -> Setting:
        rule = at_least(floor)
        return Setting(name, Kind.INT, value, documentation, rule, has_effect=has_effect, is_dynamic=is_dynamic)

    return (
        row(f"group.{kind}.{what}", default, f"{meaning}.", is_dynamic=is_dynamic),
        row(f"group.{kind}.min.{what}", least, f"Least that a group may set for {kind}.{what}."),
        row(f"group.{kind}.max.{what}", most, f"Most that a group may set for {kind}.{what}."),
    )


def _common(kind: str) -> tuple[Setting, ...]:
    """What all three kinds of groups have."""
    return (
        *_bounded(
            kind,
            "session.timeout.ms",
            45000,
            45000,
            60000,
            f"A member of a {kind} group silent for so long is out",
            1,
            has_effect=kind == "consumer",
        ),
        *_bounded(
            kind,
            "heartbeat.interval.ms",
            5000,
            5000,
            15000,
            f"Time between two heartbeats in a {kind} group",
            1,
            has_effect=kind == "consumer",
        ),
        *_bounded(
            kind,
            "assignment.interval.ms",
            1000,
            0,
            15000,
            f"Least time between two assignments of a {kind} group that reads many partitions",
            0,
            has_effect=kind == "consumer",
            is_dynamic=True,
        ),
    )


GROUP_PROTOCOL_SETTINGS = (
    *_common("consumer"),
    Setting("group.consumer.max.size", Kind.INT, INT_MAX, "Most members of a consumer group.", at_least(1)),
    Setting(
        "group.consumer.assignors",
        Kind.LIST,
        ("uniform", "range"),
        "Ways to share partitions in a consumer group: uniform, range. The first is used where no member asks for one.",
        Rule("one or more of uniform, range", _assignors_problem),
    ),
    Setting(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Which groups with members may change their protocol: upgrade is from classic to consumer, downgrade from "
        "consumer to classic, bidirectional both, disabled none.",
        Rule("one of " + ", ".join(MIGRATION_POLICIES), _migration_policy_problem),
    ),
    Setting(
        "group.consumer.regex.refresh.interval.ms",
        Kind.INT,
        600000,
        "How often the topics of a regular expression are looked for; kwire looks whenever topics have changed.",
        at_least(10000),
        has_effect=False,
    ),
    *_common("share"),
    Setting(
        "group.share.max.size", Kind.INT, 200, "Most members of a share group.", between(1, 1000), has_effect=False
    ),
    Setting(
        "group.share.record.lock.duration.ms",
        Kind.INT,
        30000,
        "How long a record stays with the consumer of a share group that got it.",
        between(1000, 3600000),
        has_effect=False,
    ),
    Setting(
        "group.share.min.record.lock.duration.ms",
        Kind.INT,
        15000,
        "Least that a group may set for share.record.lock.duration.ms.",
        between(1000, 30000),
        has_effect=False,
    ),
    Setting(
        "group.share.max.record.lock.duration.ms",
        Kind.INT,
        60000,
        "Most that a group may set for share.record.lock.duration.ms.",
        between(30000, 3600000),
        has_effect=False,
    ),
    Setting(
        "group.share.delivery.count.limit",
        Kind.INT,
        5,
        "How often a share group tries to deliver a record.",
        between(2, 10),
        has_effect=False,
    ),
    Setting(
        "group.share.min.delivery.count.limit",
        Kind.INT,
        2,
        "Least that a group may set for share.delivery.count.limit.",
        between(2, 5),
        has_effect=False,
    ),
    Setting(
        "group.share.max.delivery.count.limit",
        Kind.INT,
        10,
        "Most that a group may set for share.delivery.count.limit.",
        between(5, 25),
        has_effect=False,
    ),
    Setting(
        "group.share.partition.max.record.locks",
        Kind.INT,
        2000,
        "Most records of a partition that the consumers of a share group have at a time.",
        between(100, 10000),
        has_effect=False,
    ),
    Setting(
        "group.share.min.partition.max.record.locks",
        Kind.INT,
        100,
        "Least that a group may set for share.partition.max.record.locks.",
        between(100, 2000),
        has_effect=False,
    ),
    Setting(
        "group.share.max.partition.max.record.locks",
        Kind.INT,
        4000,
        "Most that a group may set for share.partition.max.record.locks.",
        between(2000, 10000),
        has_effect=False,
    ),
    *_common("streams"),
    Setting(
        "group.streams.max.size", Kind.INT, INT_MAX, "Most members of a streams group.", at_least(1), has_effect=False
    ),
    Setting(
        "group.streams.num.standby.replicas",
        Kind.INT,
        0,
        "Standby copies of each task of a streams group.",
        at_least(0),
        has_effect=False,
    ),
    Setting(
        "group.streams.max.standby.replicas",
        Kind.INT,
        2,
        "Most that a group may set for streams.num.standby.replicas.",
        at_least(0),
        has_effect=False,
    ),
    Setting(
        "group.streams.initial.rebalance.delay.ms",
        Kind.INT,
        3000,
        "How long the first member of an empty streams group waits for others.",
        at_least(0),
        has_effect=False,
    ),
)
