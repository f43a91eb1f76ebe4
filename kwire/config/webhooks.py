"""The configuration section of webhooks."""

from typing import NamedTuple

from kwire.config.setting import LONG_MAX
from kwire.config.settings.webhooks import ALL_PORTS
from kwire.config.values import Values

_HOUR_MS = 3_600_000


class WebhooksConfig(NamedTuple):
    """Settings of webhooks. `ports` is None if all ports are allowed."""

    is_enabled: bool
    is_persisted: bool
    webhooks_max: int
    timeout_ms: int
    retry_schedule_ms: tuple[int, ...]
    dispatch_interval_ms: int
    disable_after_ms: int
    secret_overlap_ms: int
    is_private_allowed: bool
    is_http_allowed: bool
    ports: frozenset[int] | None
    connections_max: int
    connections_per_host_max: int
    # The topic of the cluster in which a bridge stores webhooks.
    bridge_topic: str


def webhooks_config(values: Values) -> WebhooksConfig:
    schedule = values.string("kwire.webhooks.retry.schedule.ms")
    ports = values.strings("kwire.webhooks.ports")
    disable_hours = values.number("kwire.webhooks.disable.after.hours")
    return WebhooksConfig(
        is_enabled=values.flag("kwire.webhooks.enable"),
        is_persisted=values.flag("kwire.webhooks.persist"),
        webhooks_max=values.number("kwire.webhooks.max"),
        timeout_ms=values.number("kwire.webhooks.timeout.ms"),
        retry_schedule_ms=tuple(int(text) for text in schedule.split(",")) if schedule else (),
        dispatch_interval_ms=values.number("kwire.webhooks.dispatch.interval.ms"),
        disable_after_ms=disable_hours * _HOUR_MS if disable_hours >= 0 else LONG_MAX,
        secret_overlap_ms=values.number("kwire.webhooks.secret.overlap.hours") * _HOUR_MS,
        is_private_allowed=values.flag("kwire.webhooks.allow.private"),
        is_http_allowed=values.flag("kwire.webhooks.allow.http"),
        ports=None if ALL_PORTS in ports else frozenset(map(int, ports)),
        connections_max=values.number("kwire.webhooks.max.connections"),
        connections_per_host_max=values.number("kwire.webhooks.max.connections.per.host"),
        bridge_topic=values.string("kwire.bridge.webhooks.topic"),
    )
