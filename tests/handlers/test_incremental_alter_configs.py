"""IncrementalAlterConfigs: single settings of topics, brokers, groups, client metrics and loggers, changed or not."""

import asyncio
import errno
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from string import ascii_letters

import pytest

from kwire.config.resources import client_metrics as client_metrics_config
from kwire.errors import ErrorCode
from kwire.wire.apis import INCREMENTAL_ALTER_CONFIGS
from kwire.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
)
from tests.support.configs import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    HERE,
    LOGGER,
    METRICS,
    SET,
    SUBTRACT,
    TOPIC,
    Operation,
    described,
    edit,
)
from tests.support.faulty_files import FaultyFiles
from tests.support.node import NODE_ID, QuietNode, in_every_version, in_loop
from tests.support.partition_log import log_of

WAIT_S = 20.0
# Names of a list that are looked for in another, one by one, for comparison: a fraction of all.
COMPARED = 2000

VERSIONS = list(INCREMENTAL_ALTER_CONFIGS.versions)


def resource(name: str, *operations: Operation, kind: int = TOPIC) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(config_operation=operation, name=setting, value=value)
            for operation, setting, value in operations
        ],
    )


async def alter(
    node: QuietNode, version: int, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[AlterConfigsResourceResponse]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses: list[AlterConfigsResourceResponse] = (await node.ask(request, version)).responses
    assert [(one.resource_type, one.resource_name) for one in responses] == [
        (one.resource_type, one.resource_name) for one in resources
    ]
    for one in responses:
        assert bool(one.error_code) == bool(one.error_message)
    return responses


async def code_of(node: QuietNode, version: int, *operations: Operation) -> ErrorCode:
    (one,) = await alter(node, version, resource("t", *operations))
    return ErrorCode(one.error_code)


def configs(node: QuietNode, name: str = "t") -> dict[str, str]:
    topic = node.topics.get(name)
    assert topic is not None
    return dict(topic.configs)


@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_settings_are_set_and_go_back_to_their_default(node: QuietNode, version: int) -> None:
    topic = await node.create("t", 1, retention_ms="5")
    operations = (SET, "segment.ms", "7"), (SET, "retention.ms", "6")
    assert await code_of(node, version, *operations) is ErrorCode.NONE
    assert configs(node) == {"retention.ms": "6", "segment.ms": "7"}
    assert topic.partitions[0].settings.segment_ms == 7
    assert await code_of(node, version, (DELETE, "retention.ms", None), (DELETE, "flush.ms", None)) is ErrorCode.NONE
    assert configs(node) == {"segment.ms": "7"}
    node.restart()
    assert configs(node) == {"segment.ms": "7"}


@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_lists_grow_and_shrink(node: QuietNode, version: int) -> None:
    await node.create("t")
    steps: list[tuple[Operation, str]] = [
        # The default is what is added to.
        ((APPEND, "cleanup.policy", "compact"), "delete,compact"),
        ((APPEND, "cleanup.policy", "compact"), "delete,compact"),
        ((SUBTRACT, "cleanup.policy", "delete"), "compact"),
        ((SUBTRACT, "cleanup.policy", "delete"), "compact"),
        ((APPEND, "cleanup.policy", " delete , compact"), "compact,delete"),
    ]
    for operation, expected in steps:
        assert await code_of(node, version, operation) is ErrorCode.NONE
        assert configs(node) == {"cleanup.policy": expected}


@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_validation_changes_nothing(node: QuietNode, version: int) -> None:
    await node.create("t")
    good, bad = await alter(
        node,
        version,
        resource("t", (SET, "retention.ms", "1")),
        resource("missing", (SET, "retention.ms", "1")),
        validate_only=True,
    )
    assert (good.error_code, bad.error_code) == (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (refused,) = await alter(node, version, resource("t", (SET, "retention.ms", "x")), validate_only=True)
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert configs(node) == {}


@in_loop
async def test_what_cannot_be_is_refused_as_a_whole(node: QuietNode) -> None:
    await node.create("t", 1, retention_ms="5")
    good: Operation = (SET, "segment.ms", "7")
    cases: dict[ErrorCode, list[tuple[Operation, ...]]] = {
        ErrorCode.INVALID_CONFIG: [
            (good, (SET, "no.such", "1")),
            (good, (SET, "retention.ms", "soon")),
            (good, (APPEND, "retention.ms", "1")),
            (good, (SUBTRACT, "no.such", "1")),
            (good, (APPEND, "cleanup.policy", "shred")),
            ((SET, "min.compaction.lag.ms", "9"), (SET, "max.compaction.lag.ms", "8")),
        ],
        ErrorCode.INVALID_REQUEST: [
            (good, good),
            (good, (SET, "retention.ms", None)),
            (good, (APPEND, "cleanup.policy", None)),
            (good, (4, "retention.ms", "1")),
            (good, (-1, "retention.ms", "1")),
        ],
    }
    for version in VERSIONS:
        for code, requests in cases.items():
            for operations in requests:
                assert await code_of(node, version, *operations) is code
    assert configs(node) == {"retention.ms": "5"}


@in_loop
async def test_resources_are_judged_each_on_its_own(node: QuietNode) -> None:
    await node.create("t")
    for version in VERSIONS:
        results = await alter(
            node,
            version,
            resource(str(NODE_ID), (SET, "num.partitions", "3"), kind=BROKER),
            resource("g", (SET, "x", "y"), kind=GROUP),
            resource("missing", (SET, "retention.ms", "1")),
            resource("missing", (SET, "retention.ms", "1"), kind=3),
            resource("missing", (SET, "retention.ms", "1"), kind=0),
            resource("t", (SET, "retention.ms", "1")),
        )
        assert [one.error_code for one in results] == [
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUEST,
            ErrorCode.NONE,
        ]
    assert configs(node) == {"retention.ms": "1"}


@in_loop
async def test_names_that_no_topic_can_have_are_refused_as_kafka_does(node: QuietNode) -> None:
    change: Operation = (SET, "retention.ms", "1")
    assert (await edit(node, TOPIC, "", change))[0] == ErrorCode.INVALID_REQUEST
    assert (await edit(node, TOPIC, "not a name", change))[0] == ErrorCode.INVALID_TOPIC_EXCEPTION
    # What no topic can be set to is told before that there is no such topic.
    assert (await edit(node, TOPIC, "missing", (SET, "no.such", "1")))[0] == ErrorCode.INVALID_CONFIG


@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_broker_settings_change_at_once_and_for_good(node: QuietNode, version: int) -> None:
    topic = await node.create("t")
    partition = topic.partitions[0]
    assert partition.settings.max_message_bytes == 1048588
    done = (0, None)
    assert await edit(node, BROKER, "", (SET, "message.max.bytes", "3000"), version=version) == done
    assert partition.settings.max_message_bytes == 3000
    assert await edit(node, BROKER, HERE, (SET, "message.max.bytes", "2000"), version=version) == done
    assert partition.settings.max_message_bytes == 2000
    assert await edit(node, TOPIC, "t", (SET, "max.message.bytes", "1000"), version=version) == done
    assert partition.settings.max_message_bytes == 1000
    node.restart()
    restarted = node.topics.get("t")
    assert restarted is not None
    for kind, name, setting, left in (
        (TOPIC, "t", "max.message.bytes", 1000),
        (BROKER, HERE, "message.max.bytes", 2000),
        (BROKER, "", "message.max.bytes", 3000),
    ):
        assert restarted.partitions[0].settings.max_message_bytes == left
        assert await edit(node, kind, name, (DELETE, setting, None), version=version) == done
        # The one who holds the topic sees it without another look.
        assert restarted.partitions[0].settings.max_message_bytes > left
    assert restarted.partitions[0].settings.max_message_bytes == 1048588
    assert node.configs.names(BROKER) == []


@in_loop
async def test_new_topics_follow_a_changed_broker_and_open_logs_too(node: QuietNode) -> None:
    old = (await node.create("old")).partitions[0]
    assert log_of(old).settings.segment_ms == 604800000
    assert await edit(node, BROKER, HERE, (SET, "log.roll.ms", "7"), (SET, "kwire.log.sync", "os")) == (0, None)
    new = (await node.create("new")).partitions[0]
    for partition in (old, new):
        assert log_of(partition).settings.segment_ms == 7
        assert not partition.settings.is_group_synced


@in_loop
async def test_what_a_broker_cannot_have_is_refused_with_kafkas_code(node: QuietNode) -> None:
    here, fixed = ErrorCode.INVALID_REQUEST, "Cannot update these configs dynamically: [node.id, num.partitions]"
    cases: list[tuple[str, tuple[Operation, ...], ErrorCode, str]] = [
        (HERE, ((SET, "num.partitions", "3"), (SET, "node.id", "2")), here, fixed),
        ("", ((SET, "num.partitions", "3"), (SET, "node.id", "2")), here, fixed),
        ("", ((SET, "cordoned.log.dirs", "*"),), here, "at default cluster level, broker id must be specified: [cord"),
        (HERE, ((SET, "no.such", "3"),), ErrorCode.INVALID_CONFIG, "Unknown broker config name: no.such"),
        (HERE, ((SET, "message.max.bytes", "x"),), here, "Not a number of type INT"),
        ("", ((SET, "message.max.bytes", "-1"),), here, "Value must be at least 0"),
        ("2", ((SET, "message.max.bytes", "1"),), here, "Unexpected broker id, expected 1, but received 2"),
        ("x", ((SET, "message.max.bytes", "1"),), here, "Node id must be an integer, but it is: x"),
        (HERE, ((APPEND, "message.max.bytes", "1"),), ErrorCode.INVALID_CONFIG, "its type is not LIST"),
        (HERE, ((7, "message.max.bytes", "1"),), here, "Unknown operations type 7"),
        (HERE, ((SET, "message.max.bytes", None),), here, "Null value not supported for : message.max.bytes"),
    ]
    for name, operations, code, words in cases:
        told, message = await edit(node, BROKER, name, (SET, "log.roll.ms", "5"), *operations)
        assert told == code
        assert words in (message or "")
    assert node.configs.names(BROKER) == []
    # What is not set can be taken away, known or not: tools clear throttles that way.
    taken = [(DELETE, name, None) for name in ("leader.replication.throttled.rate", "num.partitions", "no.such")]
    assert await edit(node, BROKER, HERE, *taken) == (0, None)


@in_loop
async def test_list_of_a_broker_grows_from_what_is_in_force(node: QuietNode) -> None:
    assert await edit(node, BROKER, HERE, (APPEND, "log.cleanup.policy", "compact")) == (0, None)
    assert node.configs.overrides(BROKER, HERE) == {"log.cleanup.policy": "delete,compact"}
    assert await edit(node, BROKER, HERE, (SUBTRACT, "log.cleanup.policy", "delete")) == (0, None)
    assert node.configs.overrides(BROKER, HERE) == {"log.cleanup.policy": "compact"}


@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_settings_of_groups_and_client_metrics_live_on(node: QuietNode, version: int) -> None:
    group: Operation = (SET, "consumer.session.timeout.ms", "50000")
    metrics: Operation = (SET, "match", "client_id=a.*")
    assert await edit(node, GROUP, "g", group, version=version) == (0, None)
    assert await edit(node, METRICS, "s", metrics, (SET, "interval.ms", "100"), version=version) == (0, None)
    assert await edit(node, METRICS, "s", (APPEND, "metrics", "x,y"), (DELETE, "interval.ms", None)) == (0, None)
    assert await edit(node, METRICS, "s", (SUBTRACT, "metrics", "x")) == (0, None)
    node.restart()
    assert node.configs.overrides(GROUP, "g") == {"consumer.session.timeout.ms": "50000"}
    assert node.configs.overrides(METRICS, "s") == {"match": "client_id=a.*", "metrics": "y"}
    assert await edit(node, GROUP, "g", (DELETE, "consumer.session.timeout.ms", None), version=version) == (0, None)
    assert node.configs.names(GROUP) == []
    node.restart()
    assert node.configs.names(GROUP) == []


@in_loop
async def test_what_groups_and_client_metrics_cannot_have_is_refused(node: QuietNode) -> None:
    good: Operation = (SET, "consumer.session.timeout.ms", "50000")
    assert await edit(node, GROUP, "", good) == (
        ErrorCode.INVALID_REQUEST,
        "Default group resources are not allowed.",
    )
    assert await edit(node, GROUP, "g", good, (SET, "no.such", "1")) == (
        ErrorCode.INVALID_CONFIG,
        "Unknown group config name: no.such",
    )
    assert await edit(node, METRICS, "", (SET, "metrics", "a")) == (
        ErrorCode.INVALID_REQUEST,
        "Subscription name can't be empty",
    )
    assert await edit(node, METRICS, "s", (SET, "no.such", "1")) == (
        ErrorCode.INVALID_REQUEST,
        "Unknown client metrics configuration: no.such",
    )
    assert node.configs.names(GROUP) == node.configs.names(METRICS) == []


@pytest.fixture
def levels() -> Iterator[None]:
    """Loggers are as they were afterwards."""
    loggers = logging.root, logging.getLogger("kwire.broker")
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("levels")
@in_every_version(INCREMENTAL_ALTER_CONFIGS)
@in_loop
async def test_levels_of_loggers_change(node: QuietNode, version: int) -> None:
    logger = logging.getLogger("kwire.broker")
    operations: tuple[Operation, ...] = (SET, "kwire.broker", "DEBUG"), (SET, "root", "ERROR")
    assert await edit(node, LOGGER, HERE, *operations, version=version, validate_only=True) == (0, None)
    assert not logger.isEnabledFor(logging.DEBUG)
    assert await edit(node, LOGGER, HERE, *operations, version=version) == (0, None)
    assert logger.isEnabledFor(logging.DEBUG)
    assert (await described(node, LOGGER, HERE))["kwire.broker"].value == "DEBUG"
    assert await edit(node, LOGGER, HERE, (DELETE, "kwire.broker", None), version=version) == (0, None)
    assert (await described(node, LOGGER, HERE))["kwire.broker"].value == "ERROR"


@pytest.mark.usefixtures("levels")
@in_loop
async def test_what_a_logger_cannot_have_is_refused(node: QuietNode) -> None:
    cases: list[tuple[str, Operation, ErrorCode, str]] = [
        (HERE, (SET, "no.such", "DEBUG"), ErrorCode.INVALID_CONFIG, "Logger no.such does not exist!"),
        (HERE, (SET, "root", "LOUD"), ErrorCode.INVALID_CONFIG, "DEBUG, ERROR, FATAL, INFO, TRACE, WARN"),
        (HERE, (DELETE, "root", None), ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger"),
        (HERE, (APPEND, "root", "INFO"), ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
        (HERE, (9, "root", "INFO"), ErrorCode.INVALID_REQUEST, "Unknown operations type 9"),
        ("", (SET, "root", "INFO"), ErrorCode.INVALID_REQUEST, "Node id must be an integer"),
        ("2", (SET, "root", "INFO"), ErrorCode.INVALID_REQUEST, "Unexpected node id. Expected 1, but received 2"),
    ]
    for name, operation, code, words in cases:
        told, message = await edit(node, LOGGER, name, (SET, "kwire.broker", "TRACE"), operation)
        assert told == code
        assert words in (message or "")
    assert logging.getLogger("kwire.broker").level == logging.NOTSET


@in_loop
async def test_list_does_not_grow_beyond_what_can_be_told(node: QuietNode) -> None:
    await node.create("t")
    for kind, name, setting in ((TOPIC, "t", "leader.replication.throttled.replicas"), (METRICS, "s", "metrics")):
        for part, code in ((1, ErrorCode.NONE), (2, ErrorCode.INVALID_CONFIG)):
            more = ",".join(f"{part}:{number}" for number in range(4000))
            told, message = await edit(node, kind, name, (APPEND, setting, more))
            assert told == code
        assert "Longer than 32767 bytes" in (message or "")
        assert len((await described(node, kind, name, setting, version=1))[setting].value or "") < 32768


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_topic_that_comes_twice_is_refused_and_the_others_are_not(node: QuietNode, version: int) -> None:
    await node.create("twice")
    await node.create("once")
    change: Operation = (SET, "retention.ms", "1")
    results = await alter(node, version, *(resource(name, change) for name in ("twice", "once", "twice")))
    assert [one.error_code for one in results] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert (configs(node, "twice"), configs(node, "once")) == ({}, {"retention.ms": "1"})


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_two_who_change_at_the_same_time_do_not_undo_each_other(node: QuietNode, version: int) -> None:
    await node.create("t")
    codes = await asyncio.gather(
        code_of(node, version, (SET, "retention.ms", "1")), code_of(node, version, (SET, "segment.ms", "2"))
    )
    assert set(codes) == {ErrorCode.NONE}
    expected = {"retention.ms": "1", "segment.ms": "2"}
    assert configs(node) == expected
    node.restart()
    assert configs(node) == expected


@in_loop
async def test_change_that_has_begun_is_finished_when_its_client_goes_away(node: QuietNode) -> None:
    await node.create("t")
    for kind, name, first, second in (
        (TOPIC, "t", "segment.ms", "retention.ms"),
        (BROKER, HERE, "log.roll.ms", "log.retention.ms"),
    ):
        asked = asyncio.ensure_future(edit(node, kind, name, (SET, first, "7")))
        while not node.configs.change_lock.locked():
            await asyncio.sleep(0)
        asked.cancel()
        # The next one waits for its turn.
        assert await edit(node, kind, name, (SET, second, "8")) == (0, None)
    assert configs(node) == {"segment.ms": "7", "retention.ms": "8"}
    assert node.configs.overrides(BROKER, HERE) == {"log.roll.ms": "7", "log.retention.ms": "8"}


@in_loop
async def test_broker_keeps_all_that_is_changed_at_the_same_time(node: QuietNode) -> None:
    names = ["log.roll.ms", "message.max.bytes", "log.retention.ms", "log.segment.delete.delay.ms"]
    answers = await asyncio.gather(
        *(edit(node, BROKER, where, (SET, name, "5000")) for name in names for where in (HERE, ""))
    )
    assert set(answers) == {(0, None)}
    assert node.configs.overrides(BROKER, HERE) == node.configs.overrides(BROKER, "") == dict.fromkeys(names, "5000")


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_full_disk_leaves_the_topic_as_it_was(tmp_path: Path, version: int) -> None:
    files = FaultyFiles()
    with QuietNode(tmp_path, files=files) as node:
        await node.create("t")
        files.break_down("pwrite", errno.ENOSPC)
        assert await code_of(node, version, (SET, "retention.ms", "1")) is ErrorCode.KAFKA_STORAGE_ERROR
        assert configs(node) == {}
        change: Operation = (SET, "message.max.bytes", "1")
        assert (await edit(node, BROKER, HERE, change, version=version))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.configs.names(BROKER) == []
        assert node.services.config.values["message.max.bytes"].text == "1048588"


@pytest.mark.parametrize("version", VERSIONS)
@in_loop
async def test_no_change_is_no_error(node: QuietNode, version: int) -> None:
    await node.create("t", 1, retention_ms="5")
    assert await code_of(node, version) is ErrorCode.NONE
    assert configs(node) == {"retention.ms": "5"}
    assert await alter(node, version) == []


@in_loop
async def test_expressions_that_take_long_hold_nobody_up(node: QuietNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some classes of characters take milliseconds to be read, so a thread does that.

    Here they take until another request is answered: on the loop's own thread that would never happen.
    """
    is_other_answered, began = threading.Event(), threading.Event()
    validate = client_metrics_config.validate

    def validate_slowly(overrides: Mapping[str, str]) -> None:
        began.set()
        assert is_other_answered.wait(WAIT_S)
        validate(overrides)

    monkeypatch.setattr(client_metrics_config, "validate", validate_slowly)
    expression = "(?i)" + "[\x01-\uffff]" * 10
    asked = asyncio.ensure_future(edit(node, METRICS, "s", (SET, "match", f"client_id={expression}")))
    async with asyncio.timeout(WAIT_S):
        while not began.is_set():
            await asyncio.sleep(0.001)
        assert (await described(node, METRICS, "s"))["match"].value == ""
        assert not asked.done()
        is_other_answered.set()
        assert await asked == (0, None)
    assert node.configs.overrides(METRICS, "s") == {"match": f"client_id={expression}"}


@in_loop
async def test_long_lists_grow_and_shrink_quickly(node: QuietNode) -> None:
    """Compared each with each, these would hold up the loop for longer than a fraction of those comparisons takes."""
    names = ["".join(letters) for letters in product(ascii_letters, repeat=3)]
    some, others = names[:8000], names[8000:16000]
    assert await edit(node, METRICS, "s", (SET, "metrics", ",".join(some))) == (0, None)
    began = time.process_time()
    assert await edit(node, METRICS, "s", (APPEND, "metrics", ",".join([*some[1:], "x"]))) == (0, None)
    assert await edit(node, METRICS, "s", (SUBTRACT, "metrics", ",".join(others))) == (0, None)
    assert await edit(node, METRICS, "s", (SUBTRACT, "metrics", ",".join(some[:0:-1]))) == (0, None)
    edits_s = time.process_time() - began
    began = time.process_time()
    assert not any(name in others for name in some[:: len(some) // COMPARED])
    # Measured here and now, so that a slow or busy machine changes both alike.
    assert edits_s < time.process_time() - began
    assert node.configs.overrides(METRICS, "s") == {"metrics": f"{some[0]},x"}
