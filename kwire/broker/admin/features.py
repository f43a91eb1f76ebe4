"""Feature levels (KIP-584): the levels that this server supports, and the finalized level of each feature.

Clients choose their behaviour by the finalized levels. So a feature is supported only if the server serves its APIs.
The finalized levels are one entry of the metadata store. The revision of that entry is the epoch of the levels. So two
different sets of levels never have the same epoch.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT
from storage.errors import StorageError

KEY = "features"
# An attempt fails if another request changes the levels at the same time.
UPDATE_ATTEMPTS_MAX = 10


class Feature(NamedTuple):
    """A feature, its levels, and the keys of the APIs that it requires."""

    name: str
    first_level: int
    last_level: int
    api_keys: Sequence[int] = ()

    def fitted(self, stored: Mapping[str, int]) -> int:
        """Return the level of this feature, given the stored levels of all features.

        If no level is stored, this is `last_level`. If the stored level is not supported, this is the nearest supported
        level.
        """
        return min(max(stored.get(self.name, self.last_level), self.first_level), self.last_level)

    @property
    def levels(self) -> str:
        return str(self.last_level) if self.first_level == self.last_level else f"{self.first_level}-{self.last_level}"


TRANSACTION_VERSION = "transaction.version"

# Level 0 disables a feature. The handlers of the feature's APIs check the level.
FEATURES = (
    # This is the level of Kafka 4.4. kwire does not store Kafka's metadata records, so no lower level is supported.
    Feature("metadata.version", 33, 33),
    # Level 1 is the consumer group protocol of KIP-848.
    Feature("group.version", 0, 1, (68, 69)),
    # Level 1 has tagged fields in the transaction log. Level 2 has the transactions of KIP-890.
    Feature(TRANSACTION_VERSION, 0, 2, (24, 25, 26, 28)),
)


class UpgradeType(IntEnum):
    """The kind of an update, by Kafka's codes."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A requested level. `upgrade_type` is the value that the client sent, and may be invalid."""

    level: int
    upgrade_type: int


class Finalized(NamedTuple):
    """The finalized level of every supported feature, and the epoch of these levels."""

    levels: Mapping[str, int]
    epoch: int


class Features:
    """The features of this server. Levels are always read from the metadata store."""

    def __init__(self, metastore: MetaStore, served_keys: Collection[int], table: Sequence[Feature] = FEATURES) -> None:
        self._metastore = metastore
        self.supported = {one.name: one for one in table if all(key in served_keys for key in one.api_keys)}

    @property
    def finalized(self) -> Finalized:
        entry = self._metastore.get(KEY)
        stored: Mapping[str, int] = entry.value if entry else {}
        return Finalized(self._fitted(stored), entry.revision if entry else ABSENT)

    def level(self, name: str) -> int:
        """Return the finalized level of a feature, or 0 if the feature is not supported."""
        feature = self.supported.get(name)
        entry = self._metastore.get(KEY)
        return feature.fitted(entry.value if entry else {}) if feature else 0

    async def register(self) -> None:
        """Store the levels that apply if they differ from the stored ones. Then clients see a new epoch.

        They differ at the first start, and at the first start of a version that supports other levels.
        """
        entry = self._metastore.get(KEY)
        if entry is None or entry.value != self.finalized.levels:
            revision = entry.revision if entry else ABSENT
            await self._metastore.commit([Change(KEY, self.finalized.levels, revision)])

    async def update(self, updates: Mapping[str, FeatureUpdate], *, validate_only: bool) -> None:
        """Set all of these levels durably, or raise KafkaError and set none. With `validate_only`, only check them."""
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
                # The levels have changed since they were checked, so they have to be checked again.
                if not attempts_left:
                    raise KafkaError(
                        ErrorCode.REQUEST_TIMED_OUT, "the feature levels keep being changed by other requests"
                    ) from conflict
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
            return f"{kind} is not a valid upgrade type."
        if level < 0:
            return "A level must not be negative."
        if feature is None:
            return "This server does not have that feature."
        if not feature.first_level <= level <= feature.last_level:
            return f"This server supports {feature.levels}."
        if level < now and kind == UpgradeType.UPGRADE:
            return f"It is at {now}; to lower it, request a downgrade."
        if level > now and kind != UpgradeType.UPGRADE:
            return f"It is at {now}, so this would not be a downgrade."
        return None
