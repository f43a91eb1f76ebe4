"""Broker settings of the newer group protocols: consumer (KIP-848), share and streams groups.

Each setting of a group type has a default for all groups, and bounds for the value that a group may set instead
(`kwire/config/resources/group.py`). Share and streams groups are not supported yet. The only effect of their settings
is to bound the values that groups may set.
"""

from kwire.config.setting import INT_MAX, Kind, Rule, Setting, SettingValue, at_least, between

MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")


def _assignors_problem(value: SettingValue) -> str | None:
    assert isinstance(value, tuple)
    if value and all(entry in ("uniform", "range") for entry in value):
        return None
    return "Expected one or more of uniform, range"


def _migration_policy_problem(value: SettingValue) -> str | None:
    """Check the name of the policy, which is case-insensitive, as in Kafka."""
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
    """Return three settings: the default of a group setting, and the minimum and maximum that a group may set."""

    def row(name: str, value: int, documentation: str, *, is_dynamic: bool = False) -> Setting:
        rule = at_least(floor)
        return Setting(name, Kind.INT, value, documentation, rule, has_effect=has_effect, is_dynamic=is_dynamic)

    return (
        row(f"group.{kind}.{what}", default, f"{meaning}.", is_dynamic=is_dynamic),
        row(f"group.{kind}.min.{what}", least, f"Minimum value of {kind}.{what} that a group may set."),
        row(f"group.{kind}.max.{what}", most, f"Maximum value of {kind}.{what} that a group may set."),
    )


def _common(kind: str) -> tuple[Setting, ...]:
    """Return the settings that all three group types have."""
    return (
        *_bounded(
            kind,
            "session.timeout.ms",
            45000,
            45000,
            60000,
            f"A member is removed from its {kind} group after this time without a heartbeat",
            1,
            has_effect=kind == "consumer",
        ),
        *_bounded(
            kind,
            "heartbeat.interval.ms",
            5000,
            5000,
            15000,
            f"Interval between the heartbeats of a member of a {kind} group",
            1,
            has_effect=kind == "consumer",
        ),
        *_bounded(
            kind,
            "assignment.interval.ms",
            1000,
            0,
            15000,
            f"Minimum time between two assignments of a {kind} group that reads many partitions",
            0,
            has_effect=kind == "consumer",
            is_dynamic=True,
        ),
    )


GROUP_PROTOCOL_SETTINGS = (
    *_common("consumer"),
    Setting(
        "group.consumer.max.size", Kind.INT, INT_MAX, "Maximum number of members of a consumer group.", at_least(1)
    ),
    Setting(
        "group.consumer.assignors",
        Kind.LIST,
        ("uniform", "range"),
        "Assignors available to consumer groups: uniform, range. The first is used if no member requests one.",
        Rule("one or more of uniform, range", _assignors_problem),
    ),
    Setting(
        "group.consumer.migration.policy",
        Kind.STRING,
        "bidirectional",
        "Which protocol changes are allowed for groups with members: upgrade (from classic to consumer), downgrade "
        "(from consumer to classic), bidirectional (both), or disabled (none).",
        Rule("one of " + ", ".join(MIGRATION_POLICIES), _migration_policy_problem),
    ),
    Setting(
        "group.consumer.regex.refresh.interval.ms",
        Kind.INT,
        600000,
        "Interval at which regular expressions are matched against the topics; kwire matches them whenever topics "
        "change.",
        at_least(10000),
        has_effect=False,
    ),
    *_common("share"),
    Setting(
        "group.share.max.size",
        Kind.INT,
        200,
        "Maximum number of members of a share group.",
        between(1, 1000),
        has_effect=False,
    ),
    Setting(
        "group.share.record.lock.duration.ms",
        Kind.INT,
        30000,
        "How long a record that a consumer of a share group has acquired stays locked for it.",
        between(1000, 3600000),
        has_effect=False,
    ),
    Setting(
        "group.share.min.record.lock.duration.ms",
        Kind.INT,
        15000,
        "Minimum value of share.record.lock.duration.ms that a group may set.",
        between(1000, 30000),
        has_effect=False,
    ),
    Setting(
        "group.share.max.record.lock.duration.ms",
        Kind.INT,
        60000,
        "Maximum value of share.record.lock.duration.ms that a group may set.",
        between(30000, 3600000),
        has_effect=False,
    ),
    Setting(
        "group.share.delivery.count.limit",
        Kind.INT,
        5,
        "Maximum number of attempts to deliver a record to a share group.",
        between(2, 10),
        has_effect=False,
    ),
    Setting(
        "group.share.min.delivery.count.limit",
        Kind.INT,
        2,
        "Minimum value of share.delivery.count.limit that a group may set.",
        between(2, 5),
        has_effect=False,
    ),
    Setting(
        "group.share.max.delivery.count.limit",
        Kind.INT,
        10,
        "Maximum value of share.delivery.count.limit that a group may set.",
        between(5, 25),
        has_effect=False,
    ),
    Setting(
        "group.share.partition.max.record.locks",
        Kind.INT,
        2000,
        "Maximum number of records of a partition that are locked for the consumers of a share group.",
        between(100, 10000),
        has_effect=False,
    ),
    Setting(
        "group.share.min.partition.max.record.locks",
        Kind.INT,
        100,
        "Minimum value of share.partition.max.record.locks that a group may set.",
        between(100, 2000),
        has_effect=False,
    ),
    Setting(
        "group.share.max.partition.max.record.locks",
        Kind.INT,
        4000,
        "Maximum value of share.partition.max.record.locks that a group may set.",
        between(2000, 10000),
        has_effect=False,
    ),
    *_common("streams"),
    Setting(
        "group.streams.max.size",
        Kind.INT,
        INT_MAX,
        "Maximum number of members of a streams group.",
        at_least(1),
        has_effect=False,
    ),
    Setting(
        "group.streams.num.standby.replicas",
        Kind.INT,
        0,
        "Number of standby replicas of each task of a streams group.",
        at_least(0),
        has_effect=False,
    ),
    Setting(
        "group.streams.max.standby.replicas",
        Kind.INT,
        2,
        "Maximum value of streams.num.standby.replicas that a group may set.",
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
