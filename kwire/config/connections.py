"""The configuration sections of connection limits and of quota windows."""

from collections.abc import Mapping
from typing import NamedTuple

from kwire.config.listeners import Listener
from kwire.config.setting import INT_MAX, InvalidConfig
from kwire.config.values import Values

# The maximum number of exceptions from max.connections.per.ip.
OVERRIDES_MAX = 10_000


class ListenerLimits(NamedTuple):
    """Limits of one Kafka listener. A number of connections of 0 means no limit."""

    connections_max: int
    creation_rate_max: int


UNLIMITED = ListenerLimits(0, INT_MAX)


class ConnectionLimits(NamedTuple):
    """Limits of the connections to the Kafka listeners. `per_ip_overrides` also applies to the HTTP port."""

    per_ip_overrides: Mapping[str, int]
    per_principal_max: int
    creation_rate_max: int
    listeners: Mapping[str, ListenerLimits]


class QuotasConfig(NamedTuple):
    """The windows over which rates are computed: number and length of the samples."""

    sample_count: int
    sample_s: int
    mutation_sample_count: int
    mutation_sample_s: int


def connection_limits(values: Values, listeners: tuple[Listener, ...]) -> ConnectionLimits:
    def limit(listener: Listener, name: str) -> int:
        return values.number(values.name_for_listener(listener.name, name))

    return ConnectionLimits(
        per_ip_overrides=_overrides(values),
        per_principal_max=values.number("kwire.max.connections.per.principal"),
        creation_rate_max=values.number("max.connection.creation.rate"),
        listeners={
            one.name: ListenerLimits(limit(one, "max.connections"), limit(one, "max.connection.creation.rate"))
            for one in listeners
        },
    )


def quotas_config(values: Values) -> QuotasConfig:
    return QuotasConfig(
        sample_count=values.number("quota.window.num"),
        sample_s=values.number("quota.window.size.seconds"),
        mutation_sample_count=values.number("controller.quota.window.num"),
        mutation_sample_s=values.number("controller.quota.window.size.seconds"),
    )


def _overrides(values: Values) -> Mapping[str, int]:
    name = "max.connections.per.ip.overrides"
    overrides: dict[str, int] = {}
    text = values.string(name)
    if not text:
        return overrides
    import ipaddress  # imported here, because it takes start-up time and few servers have the setting

    for entry in filter(None, (part.strip() for part in text.split(","))):
        address, _, count = entry.rpartition(":")
        try:
            if not count.isascii() or not count.isdigit() or len(count) > 10:
                raise ValueError
            overrides[str(ipaddress.ip_address(address.strip("[] ")))] = int(count)
        except ValueError:
            raise InvalidConfig(
                values.refusal(name, f"Expected ADDRESS:COUNT with an IP address, got {entry[:100]!r}")
            ) from None
    if len(overrides) > OVERRIDES_MAX:
        raise InvalidConfig(values.refusal(name, f"There may be at most {OVERRIDES_MAX} entries"))
    return overrides
