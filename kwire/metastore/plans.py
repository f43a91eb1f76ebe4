"""Plans: changes that are too large for one commit, and of which after a crash all are made or none.

The plan's record is written first, as undecided, then one record for each step with the values that it sets. A commit
then marks the plan as decided. After that each step is one commit, which sets its values and removes its own record.
The last one also removes the plan. `recover` completes a decided plan, and removes the records of an undecided one. The
owner calls it at the start, before it reads the keys.

While a plan runs, readers and watches see its steps one after the other. A change whose parts do not depend on each
other needs no plan: `commits.batches` divides it.
"""

from collections.abc import Mapping
from typing import Any

from kwire.metastore.commits import batches
from kwire.metastore.interface import (
    ABSENT,
    CHANGES_PER_COMMIT_MAX,
    COMMIT_BYTES_MAX,
    Change,
    CommitTooLarge,
    MetaStore,
)

# A step leaves room in its commit for the removal of its own record and of the plan.
STEP_CHANGES_MAX = CHANGES_PER_COMMIT_MAX - 2
# The values of a step are also one value, in the step's record.
STEP_BYTES_MAX = COMMIT_BYTES_MAX // 2
STEPS_MAX = 1000


class Plan:
    """A plan at one key of the metadata store. Only its owner writes the keys that it changes, one plan at a time."""

    def __init__(self, store: MetaStore, key: str) -> None:
        self._store = store
        self._key = key

    async def commit(self, values: Mapping[str, Any]) -> None:
        """Set all values, or remove keys whose value is None. If one commit is enough, no plan is written.

        If this raises after the plan was decided, the next `recover` completes it. Raises CommitTooLarge if a value is
        larger than STEP_BYTES_MAX or there would be more than STEPS_MAX steps.
        """
        await self.recover()
        steps = list(
            batches(([self._change(key, value)] for key, value in values.items()), STEP_CHANGES_MAX, STEP_BYTES_MAX)
        )
        if len(steps) > STEPS_MAX:
            raise CommitTooLarge(f"{self._key}: a plan has at most {STEPS_MAX} steps, got {len(steps)}")
        if len(steps) <= 1:
            await self._store.commit(steps[0] if steps else [])
            return
        record = {"steps": len(steps), "decided": False}
        revision = await self._store.commit([Change(self._key, record, ABSENT)])
        for number, step in enumerate(steps):
            stored = {"set": {change.key: change.value for change in step}}
            await self._store.commit([Change(self._step_key(number), stored, ABSENT)])
        await self._store.commit([Change(self._key, {**record, "decided": True}, revision)])
        await self._apply(len(steps))

    async def recover(self) -> None:
        """Complete or remove a plan that was not finished."""
        entry = self._store.get(self._key)
        if entry is None:
            return
        if entry.value["decided"]:
            await self._apply(entry.value["steps"])
        else:
            await self._remove_records(entry.value["steps"])

    async def _apply(self, step_count: int) -> None:
        for number in range(step_count):
            entry = self._store.get(self._step_key(number))
            if entry is None:
                continue  # the step was made before a crash
            changes = [self._change(key, value) for key, value in entry.value["set"].items()]
            changes.append(Change(self._step_key(number), None, entry.revision))
            if number == step_count - 1:
                changes.append(self._change(self._key, None))
            await self._store.commit(changes)

    async def _remove_records(self, step_count: int) -> None:
        # The plan's own record is last: without it, no start would find the others.
        keys = [*map(self._step_key, range(step_count)), self._key]
        for batch in batches([self._change(key, None)] for key in keys):
            await self._store.commit(batch)

    def _change(self, key: str, value: Any) -> Change:
        entry = self._store.get(key)
        return Change(key, value, entry.revision if entry is not None else ABSENT)

    def _step_key(self, number: int) -> str:
        return f"{self._key}/{number}"
