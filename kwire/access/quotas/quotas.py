"""The quotas of users, client ids and addresses. Each entity is one entry of the metadata store, `quota/<entity>`.

Changes are durable before they apply. Each change raises `revision` and notifies the listeners, so that everything that
was decided earlier for a client is decided again.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from kwire.access.audit.entries import NO_AUDIT, QUOTA, Audit
from kwire.access.quotas.client_quota import ClientQuota
from kwire.access.quotas.entities import DEFAULT, QuotaEntity, entity_of, find_limit
from kwire.access.quotas.kinds import QuotaKind, check_limit
from kwire.access.quotas.meters import Meter, MeterKey, Meters, QuotaWindow
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.metastore.interface import ABSENT

KEY_PREFIX = "quota/"
# The maximum number of entities with quotas. One response of DescribeClientQuotas has all of them.
ENTITIES_MAX = 20_000
# The changes of one commit. A larger request is stored in several commits, each entity as a whole.
CHANGES_PER_COMMIT = 100


class Alteration(NamedTuple):
    """Quotas of one entity that change. None removes a quota."""

    entity: QuotaEntity
    values: Mapping[str, float | None]


class Quotas:
    """All quotas. Lookups read only memory. Use it only in the event loop's thread."""

    def __init__(
        self,
        metastore: MetaStore,
        now: Callable[[], float],
        window: QuotaWindow | None = None,
        audit: Audit = NO_AUDIT,
    ) -> None:
        self._metastore = metastore
        self._now = now
        self._audit = audit
        self._change_lock = asyncio.Lock()
        self._listeners: list[Callable[[], None]] = []
        self.revision = 1
        self._limits: dict[QuotaEntity, dict[str, float]] = {}
        for _, entry in metastore.entries(KEY_PREFIX):
            self._limits[entity_of(entry.value["entity"].items())] = entry.value["limits"]
        self.window = window or QuotaWindow()
        self.meters = Meters(self.window, self._changed)
        # The number of addresses with quotas. All other entities are clients.
        self._ip_count = sum(1 for entity in self._limits if entity.ip is not None)

    def __len__(self) -> int:
        return len(self._limits)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever a `ClientQuota` that `client` returned is no longer valid."""
        self._listeners.append(listener)

    @property
    def is_any_client(self) -> bool:
        """Whether a user or client id has a quota."""
        return len(self._limits) > self._ip_count

    def entities(self) -> Sequence[QuotaEntity]:
        return tuple(self._limits)

    def of(self, entity: QuotaEntity) -> Mapping[str, float] | None:
        """Return the quotas of an entity itself, or None if it has none."""
        return self._limits.get(entity)

    # --- what applies to whom

    def client(self, user: str, client_id: str | None) -> ClientQuota | None:
        """Return the quotas of a client, or None if it has none. `client_id` is as in `find_limit`."""
        if not self.is_any_client:
            return None
        produce, consume, request, mutation = (
            self._meter(kind, user, client_id)
            for kind in (QuotaKind.PRODUCE, QuotaKind.CONSUME, QuotaKind.REQUEST, QuotaKind.MUTATION)
        )
        if produce is consume is request is mutation is None:
            return None
        return ClientQuota(self._now, produce, consume, request, mutation)

    def connections_of(self, ip: str) -> Meter | None:
        """Return the meter of new connections from an address, or None if it has no quota."""
        if not self._ip_count:
            return None
        limit = self._ip_limit(ip)
        return None if limit is None else self.meters.get(MeterKey(QuotaKind.CONNECTION, ip=ip), limit, self._now())

    def _meter(self, kind: QuotaKind, user: str, client_id: str | None) -> Meter | None:
        match = find_limit(self._limits, kind, user, client_id)
        if match is None:
            return None
        return self.meters.get(MeterKey(kind, match.user, match.client_id), match.limit, self._now())

    def _ip_limit(self, ip: str) -> float | None:
        for name in (ip, DEFAULT):
            values = self._limits.get(QuotaEntity(ip=name))
            if values is not None and (limit := values.get(QuotaKind.CONNECTION)) is not None:
                return limit
        return None

    # --- changes

    def check(self, alteration: Alteration) -> None:
        """Raise KafkaError if the entity cannot have these quotas."""
        for kind, value in alteration.values.items():
            if value is not None:
                check_limit(kind, value, is_for_ip=alteration.entity.ip is not None)

    async def alter(self, alterations: Iterable[Alteration]) -> None:
        """Change quotas that were checked. Raises KafkaError. The entities of one call must differ."""
        changes = list(alterations)
        for at in range(0, len(changes), CHANGES_PER_COMMIT):
            # If the caller is cancelled, the change is still completed. Otherwise the metadata store could have it, and
            # this object not.
            storing = asyncio.ensure_future(self._store(changes[at : at + CHANGES_PER_COMMIT]))
            storing.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(storing)

    async def _store(self, alterations: Sequence[Alteration]) -> None:
        async with self._change_lock:
            new: dict[QuotaEntity, dict[str, float]] = {}
            for entity, values in alterations:
                old = self._limits.get(entity, {})
                limits = {**old, **values}
                left = {kind: value for kind, value in limits.items() if value is not None}
                if left != old:
                    new[entity] = left
            if not new:
                return
            added = sum(1 for entity, left in new.items() if left and entity not in self._limits)
            if len(self._limits) + added > ENTITIES_MAX:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION, f"there may be at most {ENTITIES_MAX} entities with quotas"
                )
            try:
                await self._metastore.commit([self._change(entity, left) for entity, left in new.items()])
            except Conflict as conflict:
                raise KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, "the quotas were changed at the same time, try again"
                ) from conflict
            for entity, left in new.items():
                was_known = self._limits.pop(entity, None) is not None
                if left:
                    self._limits[entity] = left
                if entity.ip is not None:
                    self._ip_count += bool(left) - was_known
                self._audit.changed("quota.changed", QUOTA, str(entity), {"quotas": left})
            self._changed()

    def _change(self, entity: QuotaEntity, limits: Mapping[str, float]) -> Change:
        key = KEY_PREFIX + entity.key
        entry = self._metastore.get(key)
        value = {"entity": entity.parts(), "limits": dict(limits)} if limits else None
        return Change(key, value, entry.revision if entry else ABSENT)

    def _changed(self) -> None:
        self.revision += 1
        self.meters.revision = self.revision
        for listener in self._listeners:
            listener()
