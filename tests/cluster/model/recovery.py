"""What a recovery decides from the answers of the stores."""

from collections import Counter

from tests.cluster.model.checks import Violation
from tests.cluster.model.entries import BRIDGE, HOLE, SLOTS, Entry
from tests.cluster.model.mistakes import Mistake

# (acked hint, entries by slot, bits of the slots in doubt)
Answer = tuple[int, tuple[Entry | None, ...], int]


def _hint(answer: Answer) -> int:
    return answer[0]


def _length(answer: Answer) -> int:
    return max((slot + 1 for slot, entry in enumerate(answer[1]) if entry is not None), default=0)


def _only(answers: list[Answer], mistake: Mistake | None) -> Answer | None:
    """The one answer that a recovery with this mistake reads."""
    if mistake is Mistake.FIRST_REPLICA:
        return answers[0]
    if mistake is Mistake.BEST_REPLICA:
        return max(answers, key=_hint)
    if mistake is Mistake.LONGEST_LOG:
        return max(answers, key=_length)
    return None


def decide(
    answers: list[Answer], *, base: int, needed: int, epoch: int, sparse: bool, mistake: Mistake | None
) -> list[Entry] | None:
    """The log of the segment without its bridge, or None while too few answers are definite.

    `base` is the largest acked hint: the slots in front of it are committed and keep their stamps. `needed` is R, which
    is also the number of definite negatives that make a slot empty.
    """
    only = _only(answers, mistake)
    if only is not None:
        answers, needed = [only], 1
    ignored = BRIDGE if mistake is Mistake.BRIDGES_IGNORED else -1
    bridges = _bridges(answers) if ignored < 0 else []
    log: list[Entry] = []
    for slot in range(SLOTS):
        definite = 0
        best: Entry | None = None
        for _, entries, doubt in answers:
            if not doubt >> slot & 1:
                definite += 1
            entry = entries[slot]
            if entry is not None and (best is None or entry[3] > best[3]) and entry[0] != ignored:
                best = entry
        if definite < needed:
            return None
        if mistake is Mistake.MAJORITY_VOTE:
            best = _most_frequent(answers, slot)
        elif mistake is Mistake.BASE_FROM_ONE and slot < base:
            best = max(answers, key=_hint)[1][slot] or (HOLE, 0, epoch, epoch)
        if best is not None and bridges and _is_excluded(best, slot, bridges):
            best = None
        if best is None or best[0] == BRIDGE:
            # The acked index of a closed segment includes its bridge.
            if slot < base - (best is not None):
                raise Violation("I24", f"slot {slot} is in front of the acked index {base} and no store has an entry")
            continues = best is None and (sparse or mistake is Mistake.HOLE_UNDER_PREFIX)
            if not (continues and _anything_after(answers, slot, bridges)):
                break
            log.append((HOLE, 0, epoch, epoch))
        else:
            log.append(_stamped(best, slot, base, epoch, mistake))
    return log


def _stamped(entry: Entry, slot: int, base: int, epoch: int, mistake: Mistake | None) -> Entry:
    if slot < base or mistake is Mistake.OLD_STAMP_KEPT:
        return entry
    kind, payload, birth, _ = entry
    return (kind, payload, epoch if mistake is Mistake.BIRTH_OVERWRITTEN else birth, epoch)


def _bridges(answers: list[Answer]) -> list[tuple[int, int]]:
    """Slot and stamp of every bridge."""
    return [
        (slot, entry[3])
        for _, entries, _ in answers
        for slot, entry in enumerate(entries)
        if entry is not None and entry[0] == BRIDGE
    ]


def _is_excluded(entry: Entry, slot: int, bridges: list[tuple[int, int]]) -> bool:
    """The bridge rule: an entry after a bridge with a larger stamp does not count."""
    return any(slot > at and entry[3] < stamp for at, stamp in bridges)


def _anything_after(answers: list[Answer], slot: int, bridges: list[tuple[int, int]]) -> bool:
    """Whether an entry follows that no bridge excludes."""
    return any(
        entry is not None and entry[0] != BRIDGE and not _is_excluded(entry, later, bridges)
        for _, entries, _ in answers
        for later, entry in enumerate(entries[slot + 1 :], slot + 1)
    )


def _most_frequent(answers: list[Answer], slot: int) -> Entry | None:
    """The entry whose content most answers have; a missing entry has a vote, too."""
    entries = [answer[1][slot] for answer in answers]
    votes = Counter(entry and entry[:3] for entry in entries)
    winner = votes.most_common(1)[0][0]
    return next(entry for entry in entries if (entry and entry[:3]) == winner)
