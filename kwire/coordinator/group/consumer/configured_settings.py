"""The configured settings of consumer groups.

The server's configuration has settings for all groups. IncrementalAlterConfigs can override them for a group.
"""

from collections.abc import Mapping

from kwire.broker.admin.dynamic_configs import DynamicConfigs
from kwire.config import Config
from kwire.config.description import ResourceType
from kwire.config.resources import group as group_config
from kwire.coordinator.group.settings import ConsumerSettings, MigrationPolicy

SESSION_TIMEOUT = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL = "consumer.heartbeat.interval.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"


class ConfiguredGroupSettings:
    """Returns the current settings of a group. It returns the same object for all groups without group configs."""

    def __init__(self, configs: DynamicConfigs) -> None:
        self._configs = configs
        self._config: Config | None = None
        self._for_all = ConsumerSettings()

    def __call__(self, group_id: str) -> ConsumerSettings:
        config = self._configs.config
        if config is not self._config:
            self._config = config
            self._for_all = _settings({}, config)
        overrides = self._configs.overrides(ResourceType.GROUP, group_id)
        return _settings(overrides, config) if overrides else self._for_all


def _settings(overrides: Mapping[str, str], config: Config) -> ConsumerSettings:
    session_timeout_ms = group_config.value_of(SESSION_TIMEOUT, overrides, config)
    heartbeat_interval_ms = group_config.value_of(HEARTBEAT_INTERVAL, overrides, config)
    assignment_interval_ms = group_config.value_of(ASSIGNMENT_INTERVAL, overrides, config)
    assert isinstance(assignment_interval_ms, int)
    assert isinstance(session_timeout_ms, int)
    assert isinstance(heartbeat_interval_ms, int)
    return ConsumerSettings(
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=heartbeat_interval_ms,
        max_size=config.values.number("group.consumer.max.size"),
        assignors=config.values.strings("group.consumer.assignors"),
        assignment_interval_ms=assignment_interval_ms,
        migration_policy=MigrationPolicy(config.values.string("group.consumer.migration.policy").lower()),
    )
