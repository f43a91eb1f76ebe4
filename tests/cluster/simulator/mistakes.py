"""Mistakes that are planted in the real core, one line each: the simulator must find every one of them.

The numbers are those of the scenarios that break naive code. A mistake replaces a piece of the source text of a
function, which is compiled anew in its module.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from kwire.cluster.core.leader import decision, replicator
from kwire.cluster.core.policies import Gaps
from kwire.cluster.core.quorum import Quorum
from kwire.cluster.core.store import replica, segment_store
from kwire.cluster.master import segments
from kwire.cluster.segment_files import replica_file, segment_files
from storage.disk import journal
from tests.cluster.simulator.network import NetworkFaults
from tests.cluster.simulator.options import Fault, Options

NO_BIAS: Final = "no bias"


def every_seed(seed: int) -> bool:
    return True


class Mistake(Struct, frozen=True):
    """A change of `function` of `owner`, a class or a module: the text `right` becomes `wrong`."""

    number: str
    what: str
    owner: Any
    function: str
    right: str
    wrong: str
    # A seed that finds it with this bias.
    seed: int
    bias: str = "many leaders"
    # A search tries only the seeds for which this returns True.
    only: Callable[[int], bool] = every_seed


MISTAKES: Final = (
    Mistake(
        "B1",
        "a store takes entries of a leader that was replaced while it was paused",
        segment_store.SegmentStore,
        "_lead",
        "if epoch < replica.sealed_epoch:",
        "if epoch < replica.sealed_epoch and not isinstance(request, Store):",
        seed=6,
    ),
    Mistake(
        "B3",
        "a recovery treats a segment as sealed with one seal too few",
        Quorum,
        "reads",
        "self.replicas - self.writes + 1",
        "max(1, self.replicas - self.writes)",
        seed=0,
    ),
    Mistake(
        "B4",
        "only requests other than Seal fence",
        segment_store.SegmentStore,
        "_lead",
        "replica.fence(epoch)",
        "isinstance(request, Seal) or replica.fence(epoch)",
        seed=3,
    ),
    Mistake(
        "B5",
        "a replica forgets its seal in a crash",
        replica.Replica,
        "fence",
        "self.writes.append(SetSealedEpoch(self.segment, epoch))",
        "pass",
        seed=0,
    ),
    Mistake(
        "B6",
        "a recovery keeps the old stamps of what it decided",
        replicator.Replicator,
        "_adopt",
        "self.base = self.acked = min(decision.base, decision.end)",
        "self.base, self.acked = decision.end, min(decision.base, decision.end)",
        seed=0,
    ),
    Mistake(
        "B7",
        "the copy with the lowest stamp wins",
        decision,
        "_winner",
        "key=lambda run: run.stamp_epoch",
        "key=lambda run: -run.stamp_epoch",
        seed=6,
        bias="interrupted recoveries",
    ),
    Mistake(
        "B8",
        "a recovery reads the replica with the largest acked index only",
        decision,
        "decide",
        "[_Column(answer) for answer in answers]",
        "[_Column(max(answers, key=lambda answer: answer.acked))] * len(answers)",
        seed=0,
    ),
    Mistake(
        "B9",
        "two answers of one replica count as two copies",
        replicator.Replicator,
        "_raise_acked",
        "(one.matched for one in self._peers.values())",
        "(one.matched for one in self._peers.values() for _ in range(2))",
        seed=0,
    ),
    Mistake(
        "B10",
        "a store that lost entries answers that it never had them",
        replica.Replica,
        "seal",
        "tuple(self.unknown)",
        "()",
        seed=8,
    ),
    Mistake(
        "B11",
        "a later entry is acknowledged before an earlier one",
        replica.Replica,
        "store",
        "self._advance_matched()",
        "self.matched = max(self.matched, self.runs.last)",
        seed=0,
    ),
    Mistake(
        "B12",
        "a store does not compare epochs",
        segment_store.SegmentStore,
        "_lead",
        "if epoch < replica.sealed_epoch:",
        "if False:",
        seed=6,
    ),
    Mistake(
        "B15",
        "damage in the middle of a file is cut away",
        replica_file.ReplicaContent,
        "doubt",
        "self.unknown = joined_ranges([*self.unknown, lost])",
        "pass",
        seed=8,
    ),
    Mistake(
        "B16",
        "frames of another file are accepted by their checksum",
        segment_files.SegmentFiles,
        "_file_id",
        "FileId(self.incarnation.cookie, generation)",
        "FileId(0, 0)",
        seed=8,
    ),
    Mistake(
        "B17",
        "a failed sync is ignored",
        journal.Journal,
        "sync",
        "raise self._poison(error) from error",
        "pass",
        seed=33,
    ),
    Mistake(
        "B24",
        "the copy set of an unsealed segment is edited",
        segments,
        "decide_recovery",
        "state=SegmentState.SEALING)",
        "state=SegmentState.SEALING, copy_set=segment.value.record.copy_set[:-1])",
        seed=0,
    ),
    Mistake(
        "B29",
        "acknowledged slots are copied from the store that claims the largest acked index",
        decision,
        "decide",
        "_winner(columns, slots.first, bridges)",
        "_winner(columns if slots.first > base else [columns[[one.acked for one in answers].index(base)]], "
        "slots.first, bridges)",
        seed=25,
        bias="lossy recoveries",
    ),
)


@contextmanager
def planted(mistake: Mistake) -> Iterator[None]:
    """Run the block with the mistake in place."""
    owner, name = mistake.owner, mistake.function
    original = inspect.getattr_static(owner, name)
    function: Any = original.fget if isinstance(original, property) else original
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(mistake.right) == 1, f"{mistake.number}: {mistake.right!r} is not in {name} exactly once"
    namespace: dict[str, Any] = {}
    module = inspect.getmodule(function)
    assert module is not None
    exec(compile(source.replace(mistake.right, mistake.wrong), f"<{mistake.number}>", "exec"), vars(module), namespace)
    changed = namespace[name]
    # A property is compiled with its decorator.
    places = [(owner, name)]
    # Other modules have imported a function of a module by its name.
    if inspect.ismodule(owner):
        places += [(one, name) for one in _importers(original, name)]
    for place, attribute in places:
        setattr(place, attribute, changed)
    try:
        yield
    finally:
        for place, attribute in places:
            setattr(place, attribute, original)


def _importers(function: object, name: str) -> list[Any]:
    return [
        module
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("kwire.cluster") and vars(module).get(name) is function
    ]


def many_leaders(options: Options) -> None:
    """Bias a run: leaders change often, stores crash and lose pages, and messages are late."""
    number = 0
    for time in range(400, options.safety_ms, 350):
        number += 1
        kind = ("leader changes", "pause of a client", "one-way partition", "kill")[number % 4]
        if kind == "kill" and not options.is_synced:
            continue
        options.faults.append(Fault(time, kind, number * 7 % options.store_count, 100 + number * 37 % 400))
    for target in options.forgetful:
        for time in range(600, options.safety_ms, 900):
            kind = "damaged page" if time % 1800 == 600 else "misdirected write"
            options.faults.append(Fault(time, kind, target, 1 + time % 7))
            options.faults.append(Fault(time + 50, "kill", target, 5))
    for target in range(options.store_count if options.is_synced else 0):
        for time in range(500, options.safety_ms, 800):
            options.faults.append(Fault(time, "failed sync", target, time // 100))
            options.faults.append(Fault(time + 40, "power cut", target, 20))
    options.network.late = max(options.network.late, 0.1)
    options.network.loss = max(options.network.loss, 0.05)
    options.network.loss_of_ends = 0.7


def interrupted_recoveries(options: Options) -> None:
    """Bias a run: nothing fails, but leaders change while some stores are cut off, before recoveries have ended."""
    options.faults = [Fault(time, "leader changes", time, time) for time in range(300, options.safety_ms, 1000)]
    options.skews = tuple(1.0 for _ in options.skews)
    options.network = NetworkFaults(loss=0.02, loss_of_ends=0.7)


def lossy_recoveries(options: Options) -> None:
    """Bias a run as `interrupted_recoveries`; replicas hear acked indexes whose entries were lost on the way."""
    interrupted_recoveries(options)
    options.network.loss = 0.3
    options.policy = replace(options.policy, gaps=Gaps.FILLED)
    options.limits = replace(options.limits, batch_bytes=64, window_bytes=256)


BIASES: Final[Mapping[str, Callable[[Options], None] | None]] = {
    NO_BIAS: None,
    "many leaders": many_leaders,
    "interrupted recoveries": interrupted_recoveries,
    "lossy recoveries": lossy_recoveries,
}
