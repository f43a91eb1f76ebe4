"""Dynamic configuration: settings of brokers, groups and client metrics that were changed while the server ran.

The overrides of each resource are one entry of the metadata store, `config/<type>/<name>`. The overrides of topics are
in the catalogue instead. A change is checked, then made durable, then applied. A change of broker settings creates a
new configuration of this node, and the listeners are called with it. Code that needs the current configuration reads
`config` each time and does not keep a copy.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from kwire.access.audit.entries import NO_AUDIT, Audit, changed_names
from kwire.config import SETTINGS, Config, InvalidConfig, Setting
from kwire.config.description import ResourceType
from kwire.config.resources import client_metrics as client_metrics_config
from kwire.config.resources import group as group_config
from kwire.config.setting import Kind
from kwire.config.tree import with_dynamic
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

KEY_PREFIX = "config/"
# The name of the resource with the default settings of all brokers.
ALL_BROKERS = ""

_FOLDERS = {
    ResourceType.BROKER: "brokers",
    ResourceType.CLIENT_METRICS: "client-metrics",
    ResourceType.GROUP: "groups",
}

_SETTINGS: Mapping[ResourceType, Mapping[str, Setting]] = {
    ResourceType.BROKER: SETTINGS,
    ResourceType.CLIENT_METRICS: client_metrics_config.CLIENT_METRICS_SETTINGS,
    ResourceType.GROUP: group_config.GROUP_SETTINGS,
}

# Stored instead of a password. Passwords that can be set dynamically have no effect, so the value is not needed.
HIDDEN_PASSWORD = "[hidden]"

ConfigListener = Callable[[Config], Awaitable[None] | None]


class _Stored(NamedTuple):
    overrides: Mapping[str, str]
    revision: int


_NOTHING = _Stored({}, ABSENT)


class DynamicConfigs:
    """The dynamic settings of all resources except topics. Lookups read only memory. Changes are async and durable.

    A caller that changes settings acquires `change_lock` before it reads the old settings, and holds it until the
    change is complete.
    """

    def __init__(self, metastore: MetaStore, config: Config, audit: Audit = NO_AUDIT) -> None:
        self._metastore = metastore
        self._audit = audit
        self._listeners: list[ConfigListener] = []
        self._stored: dict[ResourceType, dict[str, _Stored]] = {kind: {} for kind in _FOLDERS}
        for kind, folder in _FOLDERS.items():
            prefix = f"{KEY_PREFIX}{folder}/"
            for key, entry in metastore.entries(prefix):
                self._stored[kind][key.removeprefix(prefix)] = _Stored(
                    _known_overrides(kind, key, entry.value), entry.revision
                )
        self.broker_name = str(config.node_id)
        self.change_lock = asyncio.Lock()
        self.config = self._initial_config(config)

    def overrides(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        """Return the settings that were set on this resource itself."""
        return self._stored[kind].get(name, _NOTHING).overrides

    def names(self, kind: ResourceType) -> list[str]:
        """Return the names of the resources of this type on which settings were set."""
        return list(self._stored[kind])

    def listen(self, listener: ConfigListener) -> None:
        """Register `listener`. It is called with every new configuration of this node.

        The listeners are called one after the other.
        """
        self._listeners.append(listener)

    def check(self, kind: ResourceType, name: str, overrides: Mapping[str, str]) -> None:
        """Raise KafkaError, with Kafka's code and message, if the resource may not have these settings."""
        try:
            if kind is ResourceType.GROUP:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
                group_config.validate(overrides, self.config)
            elif kind is ResourceType.CLIENT_METRICS:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
                client_metrics_config.validate(overrides)
            else:
                self._config_with(name, overrides)
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    async def replace(self, kind: ResourceType, name: str, overrides: Mapping[str, str]) -> None:
        """Replace all settings of the resource. The caller has checked them and holds `change_lock`."""
        stored = self._stored[kind].get(name, _NOTHING)
        overrides = _without_passwords(kind, overrides)
        # Unchanged settings are not written. There is one exception: if all settings of a stored entry were ignored at
        # the start, a change to no overrides still removes the entry.
        if dict(stored.overrides) == dict(overrides) and (overrides or stored.revision == ABSENT):
            return
        config = self._config_with(name, overrides) if kind is ResourceType.BROKER else None
        change = Change(f"{KEY_PREFIX}{_FOLDERS[kind]}/{name}", dict(overrides) or None, stored.revision)
        try:
            revision = await self._metastore.commit([change])
        except Conflict as conflict:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, "the settings were changed at the same time, try again"
            ) from conflict
        except StorageError as error:
            log.exception("a change of dynamic settings could not be written")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change could not be stored.") from error
        self._audit.changed("config.changed", kind.name, name, changed_names(stored.overrides, overrides))
        if overrides:
            self._stored[kind][name] = _Stored(dict(overrides), revision)
        else:
            self._stored[kind].pop(name, None)
        if config is not None:
            await self._apply(config)

    async def _apply(self, config: Config) -> None:
        self.config = config
        for listener in self._listeners:
            try:
                waiting = listener(config)
                if waiting is not None:
                    await waiting
            except Exception:
                # The change is durable and in force. If one listener fails, the others are still called.
                log.exception("a change of dynamic settings could not be applied everywhere")

    # --- settings of the broker

    def _config_with(self, name: str, overrides: Mapping[str, str]) -> Config:
        """Return this node's configuration with `overrides` set on the resource `name`. Raises KafkaError.

        `name` is `broker_name` or ALL_BROKERS. The overrides of the other of these two resources stay unchanged.
        """
        unknown = [one for one in overrides if one not in SETTINGS]
        if unknown:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {', '.join(unknown)}")
        fixed = sorted(one for one in overrides if not SETTINGS[one].is_dynamic)
        if fixed:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            )
        of_listeners = sorted(one for one in overrides if SETTINGS[one].is_per_listener)
        if of_listeners:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "These security configs can be dynamically updated only per-listener using the listener prefix: "
                f"[{', '.join(of_listeners)}]",
            )
        single = sorted(one for one in overrides if SETTINGS[one].is_per_broker)
        if single and name == ALL_BROKERS:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(single)}]",
            )
        passwords = sorted(one for one in overrides if SETTINGS[one].kind is Kind.PASSWORD and SETTINGS[one].has_effect)
        if passwords:
            # The metadata store is a plain file.
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Passwords can be set only in the server's configuration: [{', '.join(passwords)}]",
            )
        of_broker = self.overrides(ResourceType.BROKER, self.broker_name)
        of_all = self.overrides(ResourceType.BROKER, ALL_BROKERS)
        if name == ALL_BROKERS:
            of_all = overrides
        else:
            of_broker = overrides
        try:
            return with_dynamic(self.config, of_broker, of_all)
        except InvalidConfig as error:
            # Kafka's error is INVALID_REQUEST for brokers, and INVALID_CONFIG for other resources.
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _initial_config(self, config: Config) -> Config:
        """Return the configuration with the stored overrides.

        Overrides that are no longer valid are logged and ignored. They are checked one by one, so that one invalid
        override does not disable the others.
        """
        resources = self._stored[ResourceType.BROKER]
        good: dict[str, dict[str, str]] = {ALL_BROKERS: {}, self.broker_name: {}}
        for name, kept in good.items():
            stored = resources.get(name, _NOTHING)
            for setting, text in stored.overrides.items():
                kept[setting] = text
                try:
                    with_dynamic(config, good[self.broker_name], good[ALL_BROKERS])
                except InvalidConfig as error:
                    del kept[setting]
                    log.error("the dynamic setting %s is ignored: %s", setting, error)
            if name in resources:
                resources[name] = _Stored(kept, stored.revision)
        return with_dynamic(config, good[self.broker_name], good[ALL_BROKERS])


def _known_overrides(kind: ResourceType, key: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the stored overrides that this version supports.

    Other overrides are logged. The next change of the resource removes them from the metadata store.
    """
    settings, good = _SETTINGS[kind], {}
    for name, text in overrides.items():
        setting = settings.get(name)
        if setting is None or (kind is ResourceType.BROKER and not setting.is_dynamic):
            log.error("%s: %s is ignored because it is no longer a dynamic setting", key, name)
            continue
        try:
            setting.parse(text)
        except InvalidConfig as error:
            log.error("%s: a setting is ignored: %s", key, error)
            continue
        good[name] = text
    return good


def _without_passwords(kind: ResourceType, overrides: Mapping[str, str]) -> dict[str, str]:
    settings = _SETTINGS[kind]
    return {name: HIDDEN_PASSWORD if settings[name].kind is Kind.PASSWORD else text for name, text in overrides.items()}
