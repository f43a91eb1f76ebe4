"""Feature levels (KIP-584): what this server could do, and the level that the cluster has agreed on.

A row stands in the table only with levels that mean something here, and counts only when the APIs behind it are served:
clients choose their behaviour by what is finalised. The agreed levels are one entry of the metadata store; its revision
is the epoch, so an epoch never stands for two different sets of levels.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

KEY = "features"
# Each failed attempt means that somebody else changed the levels, so a few are plenty.
UPDATE_ATTEMPTS_MAX = 10


class Feature(NamedTuple):
    """A feature, the levels that can be chosen, and the API keys without which it means nothing."""

    name: str
    first_level: int
    last_level: int
    api_keys: Sequence[int] = ()

    def fitted(self, stored: Mapping[str, int]) -> int:
        """Its level where these were agreed on: one that is new begins at its last level, and a level that is gone
        becomes the nearest there is."""
        return min(max(stored.get(self.name, self.last_level), self.first_level), self.last_level)

    @property
    def levels(self) -> str:
        return str(self.last_level) if self.first_level == self.last_level else f"{self.first_level}-{self.last_level}"


TRANSACTION_VERSION = "transaction.version"

# Level 0 of a feature switches it off: whoever serves its APIs asks for the level.
FEATURES = (
    # The level of Kafka 4.4. What is on disk here is not Kafka's metadata, so there is nothing to lower it to.
    Feature("metadata.version", 33, 33),
    # 1: the consumer group protocol of KIP-848.
    Feature("group.version", 0, 1, (68, 69)),
    # 1: tagged fields in the transaction log. 2: transactions as of KIP-890.
    Feature(TRANSACTION_VERSION, 0, 2, (24, 25, 26, 28)),
)


class UpgradeType(IntEnum):
    """What a caller means to do to a level, by Kafka's codes."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A level asked for; `upgrade_type` is as it came and may be none that exists."""

    level: int
    upgrade_type: int


class Finalized(NamedTuple):
    """The level of every supported feature, and the epoch of these levels."""

    levels: Mapping[str, int]
    epoch: int


class Features:
    """Those of this server. The store has the truth; nothing is kept beside it."""

    def __init__(self, metastore: MetaStore, served_keys: Collection[int], table: Sequence[Feature] = FEATURES) -> None:
        self._metastore = metastore
        self.supported = {one.name: one for one in table if all(key in served_keys for key in one.api_keys)}

    @property
    def finalized(self) -> Finalized:
        entry = self._metastore.get(KEY)
        stored: Mapping[str, int] = entry.value if entry else {}
        return Finalized(self._fitted(stored), entry.revision if entry else ABSENT)

    def level(self, name: str) -> int:
        """The agreed level; 0 for what is not supported."""
        feature = self.supported.get(name)
        entry = self._metastore.get(KEY)
        return feature.fitted(entry.value if entry else {}) if feature else 0

    async def register(self) -> None:
        """Write down what this version of the server makes of the levels: other levels need another epoch."""
        entry = self._metastore.get(KEY)
        if entry is None or entry.value != self.finalized.levels:
            revision = entry.revision if entry else ABSENT
            await self._metastore.commit([Change(KEY, self.finalized.levels, revision)])

    async def update(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool) -> None:
        """Set all of these levels, or raise a KafkaError and set none. They are durable when this returns."""
        for attempts_left in reversed(range(UPDATE_ATTEMPTS_MAX)):
            levels, epoch = self.finalized
            for name, asked in updates.items():
                self._check(name, asked, levels.get(name, 0))
            after = {**levels, **{name: asked.level for name, asked in updates.items()}}
            if validate_only or after == levels:
                return
            try:
                await self._metastore.commit([Change(KEY, after, epoch)])
            except Conflict as conflict:
                # The levels are others than those judged: judge again.
                if not attempts_left:
                    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "others keep changing the features") from conflict
            except StorageError as error:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            else:
                return

    def _fitted(self, stored: Mapping[str, int]) -> dict[str, int]:
        return {name: feature.fitted(stored) for name, feature in self.supported.items()}

    def _check(self, name: str, asked: FeatureUpdate, now: int) -> None:
        problem = self._problem(name, asked, now)
        if problem is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be set to level {asked.level}: {problem}"
            )

    def _problem(self, name: str, asked: FeatureUpdate, now: int) -> str | None:
        level, kind = asked
        feature = self.supported.get(name)
        if kind not in UpgradeType.__members__.values():
            return f"{kind} is no upgrade type."
        if level < 0:
            return "A level is not below 0."
        if feature is None:
            return "This server does not have that feature."
        if not feature.first_level <= level <= feature.last_level:
            return f"This server has {feature.levels}."
        if level < now and kind == UpgradeType.UPGRADE:
            return f"It is at {now}, and lowering it has to be asked for as a downgrade."
        if level > now and kind != UpgradeType.UPGRADE:
            return f"It is at {now}, so this would not be a downgrade."
        return None
