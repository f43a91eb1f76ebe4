"""What was changed while the server ran, and lives on: settings of brokers, groups and client metrics.

Each resource's overrides are one entry of the metadata store, `config/<type>/<name>`; topics keep theirs in the
catalogue. A change is judged, durable, then in force: the configuration of this node is made anew, and who listens is
told. Everybody who wants the configuration in force asks `config`, and keeps nothing of it.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from kwire import client_metrics_config, group_config
from kwire.config import SETTINGS, Config, InvalidConfig, Setting
from kwire.config.description import ResourceType
from kwire.config.tree import changed
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

log = logging.getLogger("kwire.broker")

KEY_PREFIX = "config/"
# The name of the resource that stands for all brokers.
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

Listener = Callable[[Config], Awaitable[None] | None]


class _Stored(NamedTuple):
    overrides: Mapping[str, str]
    revision: int


_NOTHING = _Stored({}, ABSENT)


class DynamicConfigs:
    """Reading is plain dictionary work; changing is async and durable.

    Who changes takes `turn` first, from the look at what there is to the end: changes come one after the other.
    """

    def __init__(self, metastore: MetaStore, config: Config) -> None:
        self._metastore = metastore
        self._listeners: list[Listener] = []
        self._stored: dict[ResourceType, dict[str, _Stored]] = {kind: {} for kind in _FOLDERS}
        for kind, folder in _FOLDERS.items():
            prefix = f"{KEY_PREFIX}{folder}/"
            for key, entry in metastore.entries(prefix):
                self._stored[kind][key.removeprefix(prefix)] = _Stored(
                    _possible(kind, key, entry.value), entry.revision
                )
        self.broker_name = str(config.node_id)
        self.turn = asyncio.Lock()
        self.config = self._at_start(config)

    def overrides(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        """Only what was set on this resource; nothing for one that nobody configured."""
        return self._stored[kind].get(name, _NOTHING).overrides

    def names(self, kind: ResourceType) -> list[str]:
        """The resources that somebody configured."""
        return list(self._stored[kind])

    def listen(self, listener: Listener) -> None:
        """Have it called with every new configuration of this node, one after the other."""
        self._listeners.append(listener)

    def check(self, kind: ResourceType, name: str, overrides: Mapping[str, str]) -> None:
        """Raise KafkaError, with the words and the code of Kafka, if the resource may not have these settings."""
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
                self._changed(name, overrides)
        except InvalidConfig as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    async def replace(self, kind: ResourceType, name: str, overrides: Mapping[str, str]) -> None:
        """Let the resource have these settings and no others. The caller has checked them and holds `turn`."""
        stored = self._stored[kind].get(name, _NOTHING)
        # An unchanged one is not written, and of one without settings nothing is left, also if a start left all out.
        if dict(stored.overrides) == dict(overrides) and (overrides or stored.revision == ABSENT):
            return
        config = self._changed(name, overrides) if kind is ResourceType.BROKER else None
        change = Change(f"{KEY_PREFIX}{_FOLDERS[kind]}/{name}", dict(overrides) or None, stored.revision)
        try:
            revision = await self._metastore.commit([change])
        except Conflict as conflict:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "somebody else changed it, try again") from conflict
        except StorageError as error:
            log.exception("a change of settings could not be written")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The change could not be stored.") from error
        if overrides:
            self._stored[kind][name] = _Stored(dict(overrides), revision)
        else:
            self._stored[kind].pop(name, None)
        if config is not None:
            await self._take(config)

    async def _take(self, config: Config) -> None:
        self.config = config
        for listener in self._listeners:
            try:
                waiting = listener(config)
                if waiting is not None:
                    await waiting
            except Exception:
                # It is durable and in force; one who cannot follow does not keep it from the others.
                log.exception("a change of settings was not taken up everywhere")

    # --- the broker's own

    def _changed(self, name: str, overrides: Mapping[str, str]) -> Config:
        """The configuration of this node if one of its two resources had these settings; KafkaError if it may not."""
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
        of_broker = self.overrides(ResourceType.BROKER, self.broker_name)
        of_all = self.overrides(ResourceType.BROKER, ALL_BROKERS)
        if name == ALL_BROKERS:
            of_all = overrides
        else:
            of_broker = overrides
        try:
            return changed(self.config, of_broker, of_all)
        except InvalidConfig as error:
            # Kafka has this code for brokers, where other resources get INVALID_CONFIG.
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _at_start(self, config: Config) -> Config:
        """The configuration with what was changed earlier, without what is not possible any more: that is not fatal.

        One by one, because what has nothing to do with it must stay: retention, for one, keeps what it kept.
        """
        resources = self._stored[ResourceType.BROKER]
        good: dict[str, dict[str, str]] = {ALL_BROKERS: {}, self.broker_name: {}}
        for name, kept in good.items():
            stored = resources.get(name, _NOTHING)
            for setting, text in stored.overrides.items():
                kept[setting] = text
                try:
                    changed(config, good[self.broker_name], good[ALL_BROKERS])
                except InvalidConfig as error:
                    del kept[setting]
                    log.error("%s was changed while the server ran and is left out: %s", setting, error)
            if name in resources:
                resources[name] = _Stored(kept, stored.revision)
        return changed(config, good[self.broker_name], good[ALL_BROKERS])


def _possible(kind: ResourceType, key: str, overrides: Mapping[str, str]) -> dict[str, str]:
    """What of the stored settings this version knows and allows; the rest is told, and gone with the next change."""
    settings, good = _SETTINGS[kind], {}
    for name, text in overrides.items():
        setting = settings.get(name)
        if setting is None or (kind is ResourceType.BROKER and not setting.is_dynamic):
            log.error("%s: %s cannot be set any more, it is left out", key, name)
            continue
        try:
            setting.parse(text)
        except InvalidConfig as error:
            log.error("%s: left out: %s", key, error)
            continue
        good[name] = text
    return good
