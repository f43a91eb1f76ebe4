"""Which streams of a run are Kafka partitions. The others are plain streams."""

from __future__ import annotations

from random import Random
from typing import Final

from msgspec.structs import replace

from kwire.cluster.core.policies import Gaps, Path
from storage.log.settings import LogSettings
from tests.cluster.simulator.options import Options
from tests.cluster.simulator.world import World

PREFIX: Final = "partition"
PARTITION_CHANCE: Final = 0.5
# The producers of a partition.
PRODUCERS: Final = 2
# Log segments are small, so that a cut meets more than one of them.
LOG_SETTINGS: Final = LogSettings(segment_bytes=3_000, index_interval_bytes=300)


def is_partition(stream: str) -> bool:
    return stream.startswith(PREFIX)


def log_settings(stream: str) -> LogSettings | None:
    return LOG_SETTINGS if is_partition(stream) else None


def names_of_streams(options: Options, chance: Random | None) -> list[str]:
    """The streams of a run. In half of the runs with a chance the first one is a partition, with its policy."""
    names = [f"stream{number}" for number in range(options.stream_count)]
    if chance is not None and chance.random() < PARTITION_CHANCE:
        options.policy = replace(options.policy, gaps=Gaps.REFUSED, path=Path.SERIAL)
        names[0] = f"{PREFIX}0"
    return names


def runs_partition(seed: int) -> bool:
    """Whether the first stream of the seed's run is a partition."""
    return World(seed).chance("streams").random() < PARTITION_CHANCE
