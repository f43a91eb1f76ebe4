"""Changes of the settings of topics, brokers, groups, client metrics and loggers.

A change is a list of edits to a resource's settings. A change by AlterConfigs, Kafka's older API, replaces all settings
of the resource. Changes are durable before the request is answered, except log levels, which are only in memory.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kwire.broker.admin import log_levels
from kwire.broker.admin.dynamic_configs import DynamicConfigs
from kwire.broker.topics.catalogue import EVENTS_CONFIG
from kwire.broker.topics.names import check_name
from kwire.broker.topics.topics import Topic, Topics, protected_topic
from kwire.concurrency.chunking import spread, yield_to_loop
from kwire.config import SETTINGS, Config, InvalidConfig, Kind, Setting
from kwire.config.description import ResourceType
from kwire.config.resources import topic as topic_config
from kwire.config.resources.client_metrics import CLIENT_METRICS_SETTINGS
from kwire.config.resources.group import GROUP_SETTINGS
from kwire.config.setting import format_value
from kwire.errors import ErrorCode, KafkaError

# Checking a change takes a few hundred microseconds. After this many changes, the event loop runs other work.
CHANGES_PER_CHUNK = 20
# The maximum number of edits in a change. No resource has that many settings.
EDITS_MAX = 1_000


class Operation(IntEnum):
    """The operation of an edit, numbered as in Kafka's protocol. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Edit(NamedTuple):
    """One edit as the client sent it. `operation` and `value` may be invalid."""

    operation: int
    name: str
    value: str | None


class ResourceChange(NamedTuple):
    """The change of one resource. With `is_whole`, settings without an edit are removed. Otherwise they stay."""

    kind: int
    name: str
    edits: Sequence[Edit]
    is_whole: bool = False


class ConfigChanges:
    """Applies the changes of settings that clients request."""

    def __init__(self, topics: Topics, configs: DynamicConfigs) -> None:
        self._topics = topics
        self._configs = configs

    async def apply(
        self, changes: Sequence[ResourceChange], validate_only: bool, authorize: Callable[[ResourceChange], None]
    ) -> list[KafkaError | None]:
        """Apply each change, or only check it if `validate_only` is set.

        `authorize` raises KafkaError if the client may not make a change. Returns the error or None for each change, in
        order.
        """
        times: Counter[tuple[int, str]] = Counter()
        async for change in spread(changes):
            times[change.kind, change.name] += 1
        errors: list[KafkaError | None] = []
        for number, change in enumerate(changes, start=1):
            try:
                if times[change.kind, change.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                _check_form(change)
                authorize(change)
                # A change that has begun is completed, even if the request is cancelled.
                await asyncio.shield(asyncio.ensure_future(self._apply(change, validate_only)))
                errors.append(None)
            except KafkaError as error:
                errors.append(error)
            if number % CHANGES_PER_CHUNK == 0:
                await yield_to_loop()
        return errors

    async def _apply(self, change: ResourceChange, validate_only: bool) -> None:
        async with self._configs.change_lock:
            match change.kind:
                case ResourceType.TOPIC:
                    await self._change_topic(change, validate_only)
                case ResourceType.BROKER:
                    name = change.name and self._this_broker(change.name, "Unexpected broker id, expected {}, but")
                    await self._change_resource(ResourceType.BROKER, name, SETTINGS, change, validate_only)
                case ResourceType.CLIENT_METRICS:
                    settings = CLIENT_METRICS_SETTINGS
                    await self._change_resource(
                        ResourceType.CLIENT_METRICS, change.name, settings, change, validate_only
                    )
                case ResourceType.GROUP:
                    await self._change_resource(ResourceType.GROUP, change.name, GROUP_SETTINGS, change, validate_only)
                case ResourceType.BROKER_LOGGER if not change.is_whole:
                    self._change_levels(change, validate_only)
                case _:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {change.kind}")

    async def _change_topic(self, change: ResourceChange, validate_only: bool) -> None:
        if not change.name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        check_name(change.name)
        config = self._configs.config
        # As in Kafka, the settings are checked first: for an unknown topic with an invalid setting, the error is
        # INVALID_CONFIG.
        facts = self._topics.catalogue.find(change.name)
        before = facts.configs if facts is not None else {}
        in_force = {
            one.name: topic_config.effective(one.name, before, config).value or ""
            for one in change.edits
            if one.name in topic_config.TOPIC_SETTINGS
        }
        overrides = _apply_edits(change, before, in_force, topic_config.TOPIC_SETTINGS)
        try:
            topic_config.validate(overrides)
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        topic = self._topics.get(change.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{change.name}' does not exist.")
        if topic.is_protected:
            raise protected_topic(topic.name)
        if topic.is_hidden:
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"The topic '{change.name}' is internal and cannot be configured."
            )
        _check_event_topic(topic, change, overrides, config)
        if not validate_only and overrides != dict(topic.configs):
            await self._topics.configure(topic, overrides)

    async def _change_resource(
        self,
        kind: ResourceType,
        name: str,
        settings: Mapping[str, Setting],
        change: ResourceChange,
        validate_only: bool,
    ) -> None:
        before = self._configs.overrides(kind, name)
        if kind is ResourceType.BROKER:
            values = self._configs.config.values
            unset = {one.name: values[one.name].text or "" for one in change.edits if one.name in settings}
        else:
            unset = {name: format_value(setting.default) or "" for name, setting in settings.items()}
        overrides = _apply_edits(change, before, {**unset, **before}, settings)
        if kind is ResourceType.CLIENT_METRICS:
            # These settings contain regular expressions. Compiling a hostile one takes long, so a thread does it.
            await asyncio.to_thread(self._configs.check, kind, name, overrides)
        else:
            self._configs.check(kind, name, overrides)
        if not validate_only:
            await self._configs.replace(kind, name, overrides)

    def _change_levels(self, change: ResourceChange, validate_only: bool) -> None:
        self._this_broker(change.name, "Unexpected node id. Expected {}, but")
        for edit in change.edits:
            if edit.operation in (Operation.APPEND, Operation.SUBTRACT):
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"{Operation(edit.operation).name} operation is not allowed for the BROKER_LOGGER resource",
                )
        levels = {edit.name: None if edit.operation == Operation.DELETE else edit.value for edit in change.edits}
        log_levels.check(levels)
        if not validate_only:
            log_levels.change(levels)

    def _this_broker(self, name: str, refusal: str) -> str:
        """Check that `name` is this node's id, and return the name under which the node's settings are stored."""
        try:
            number = int(name)
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
        here = self._configs.broker_name
        if str(number) != here:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{refusal.format(here)} received {name}")
        return here


def _check_event_topic(topic: Topic, change: ResourceChange, overrides: dict[str, str], config: Config) -> None:
    """Raise KafkaError if the change would set `kwire.events` to another value.

    A change with `is_whole` may omit the setting. In that case this function adds the current value to `overrides`.
    """
    if topic.settings.is_event_topic and all(edit.name != EVENTS_CONFIG for edit in change.edits):
        overrides[EVENTS_CONFIG] = topic.configs[EVENTS_CONFIG]
    try:
        topic_config.validate(overrides)
    except InvalidConfig as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if topic_config.settings_for(overrides, config).is_event_topic != topic.settings.is_event_topic:
        raise KafkaError(ErrorCode.INVALID_CONFIG, "kwire.events can only be set by POST /topics, and never changed.")


def _check_form(change: ResourceChange) -> None:
    if len(change.edits) > EDITS_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {EDITS_MAX} settings of one resource")
    names = [edit.name for edit in change.edits]
    if len(set(names)) < len(names):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    empty = [edit.name for edit in change.edits if edit.operation != Operation.DELETE and edit.value is None]
    if empty:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(empty)}")
    for edit in change.edits:
        if edit.operation not in Operation.__members__.values():
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {edit.operation}")


def _apply_edits(
    change: ResourceChange,
    before: Mapping[str, str],
    in_force: Mapping[str, str],
    settings: Mapping[str, Setting],
) -> dict[str, str]:
    """Return the overrides of the resource after the edits. APPEND and SUBTRACT start from the value in `in_force`."""
    overrides = {} if change.is_whole else dict(before)
    for edit in change.edits:
        if edit.operation == Operation.DELETE:
            overrides.pop(edit.name, None)
            continue
        assert edit.value is not None  # checked by _check_form
        if edit.operation == Operation.SET:
            overrides[edit.name] = edit.value
            continue
        setting = settings.get(edit.name)
        if setting is None or setting.kind is not Kind.LIST:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {Operation(edit.operation).name} to key {edit.name} because its type is not LIST.",
            )
        # Dictionaries keep the order and find an item quickly. A list setting may have ten thousand items.
        items, given = dict.fromkeys(_items(in_force[edit.name])), dict.fromkeys(_items(edit.value))
        kept = [*(items | given)] if edit.operation == Operation.APPEND else [one for one in items if one not in given]
        overrides[edit.name] = ",".join(kept)
    return overrides


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
