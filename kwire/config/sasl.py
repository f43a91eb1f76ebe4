"""The configuration section of SASL."""

from collections.abc import Mapping
from typing import NamedTuple

from kwire.config.listeners import Listener
from kwire.config.setting import InvalidConfig
from kwire.config.settings.sasl import SASL_MECHANISMS
from kwire.config.values import Values


class ListenerSasl(NamedTuple):
    """Settings of one listener with SASL. `session_ms_max` is 0 if clients need not authenticate again."""

    mechanisms: tuple[str, ...]
    session_ms_max: int


class SaslConfig(NamedTuple):
    """Settings of SASL. `listeners` has the listeners with SASL, by name."""

    listeners: Mapping[str, ListenerSasl]
    failure_delay_ms: int
    receive_bytes_max: int


def sasl_config(values: Values, listeners: tuple[Listener, ...]) -> SaslConfig:
    return SaslConfig(
        listeners={one.name: _listener_sasl(values, one.name) for one in listeners if one.has_sasl},
        failure_delay_ms=values.number("connection.failed.authentication.delay.ms"),
        receive_bytes_max=values.number("sasl.server.max.receive.size"),
    )


def sasl_warnings(sasl: SaslConfig, listeners: tuple[Listener, ...]) -> list[str]:
    return [
        f"listener {one}: passwords of SASL/PLAIN are sent over the network without encryption; use SASL_SSL, or "
        "remove PLAIN from sasl.enabled.mechanisms"
        for one in listeners
        if one.has_sasl
        and not one.has_tls
        and not one.address.is_loopback
        and "PLAIN" in sasl.listeners[one.name].mechanisms
    ]


def _listener_sasl(values: Values, listener: str) -> ListenerSasl:
    name = values.name_for_listener(listener, "sasl.enabled.mechanisms")
    mechanisms = values.strings(name)
    if not mechanisms or not set(mechanisms) <= set(SASL_MECHANISMS):
        problem = f"Listener {listener} has SASL, so it needs at least one mechanism of {', '.join(SASL_MECHANISMS)}"
        raise InvalidConfig(values.refusal(name, f"{problem}, and no other"))
    return ListenerSasl(
        mechanisms, max(0, values.number(values.name_for_listener(listener, "connections.max.reauth.ms")))
    )
