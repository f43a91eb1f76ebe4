"""Broker settings that ordinary Kafka and compose files carry and that have no counterpart in one kwire process."""

from kwire.config.setting import LONG_MAX, Kind, Setting, at_least

ACCEPTED_SETTINGS = (
    Setting("process.roles", Kind.LIST, None, "Roles of a KRaft node.", has_effect=False),
    Setting(
        "controller.listener.names",
        Kind.LIST,
        (),
        "Listeners of the KRaft controller; kwire opens no door for them and leaves them out of listeners.",
    ),
    Setting("controller.quorum.voters", Kind.LIST, (), "Members of the KRaft quorum.", has_effect=False),
    Setting("controller.quorum.bootstrap.servers", Kind.LIST, (), "Where to find the quorum.", has_effect=False),
    Setting("num.network.threads", Kind.INT, 3, "Threads that read requests.", at_least(1), has_effect=False),
    Setting("num.io.threads", Kind.INT, 8, "Threads that serve requests.", at_least(1), has_effect=False),
    Setting("num.recovery.threads.per.data.dir", Kind.INT, 2, "Threads for recovery.", at_least(1), has_effect=False),
    Setting(
        "transaction.state.log.replication.factor",
        Kind.SHORT,
        1,
        "Copies of __transaction_state.",
        at_least(1),
        has_effect=False,
    ),
    Setting(
        "transaction.state.log.min.isr", Kind.INT, 1, "Least copies for a write to it.", at_least(1), has_effect=False
    ),
    Setting(
        "share.coordinator.state.topic.replication.factor", Kind.SHORT, 1, "Copies.", at_least(1), has_effect=False
    ),
    Setting("share.coordinator.state.topic.min.isr", Kind.SHORT, 1, "Least copies.", at_least(1), has_effect=False),
    Setting(
        "leader.replication.throttled.rate",
        Kind.LONG,
        LONG_MAX,
        "Most bytes per second that throttled replicas may send to followers: one node has none.",
        at_least(0),
        has_effect=False,
        is_dynamic=True,
    ),
    Setting(
        "follower.replication.throttled.rate",
        Kind.LONG,
        LONG_MAX,
        "Most bytes per second that throttled replicas may copy from leaders: one node has none.",
        at_least(0),
        has_effect=False,
        is_dynamic=True,
    ),
)
