"""Renamed metrics. For one release each of them is also exported under its former name."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

# The current name of each former name. The entries are removed in the release after 0.1.0.
FORMER_NAMES = {
    "kwire_rooms_portions": "kwire_rooms_delivered_batches",
    "kwire_rooms_lag_cuts": "kwire_rooms_lag_actions",
    "kwire_moves_pending": "kwire_relocations_pending",
    "kwire_moves_finished": "kwire_relocations_finished",
    "kwire_moves_copied_bytes": "kwire_relocations_copied_bytes",
    "kwire_moves_failures": "kwire_relocations_failures",
}
_FORMER_NAME_OF = {name: former for former, name in FORMER_NAMES.items()}


def with_former_names(families: Iterable[Metric]) -> Iterator[Metric]:
    """Yield all families. After each renamed family, yield a copy of it under the former name."""
    for family in families:
        yield family
        former = _FORMER_NAME_OF.get(family.name)
        if former is not None:
            copy = Metric(former, f"Former name of {family.name}; will be removed.", family.type)
            # The name of a sample is the name of its family and a suffix such as _total.
            copy.samples = [one._replace(name=former + one.name.removeprefix(family.name)) for one in family.samples]
            yield copy
