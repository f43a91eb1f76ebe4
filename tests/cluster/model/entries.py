"""Entries and messages of the model: plain tuples of ints, because schedules make millions of them."""

from typing import Any

# (kind, payload, birth epoch, stamp epoch). Every proposal has a payload of its own; a bridge has no birth epoch.
Entry = tuple[int, int, int, int]
# What a reader sees of an entry: kind, payload, birth epoch.
Content = tuple[int, int, int]
# (kind, receiver, ...); the layouts are below.
Message = tuple[Any, ...]

EVENT, HOLE, BRIDGE = range(3)

# The slots of a segment; the last one is kept for a bridge.
SLOTS = 8
ALL_SLOTS = (1 << SLOTS) - 1
EVENTS_MAX = 5

# The number of slots in front of the first missing one, by the bits of the slots that are there.
MATCHED = tuple(next(slot for slot in range(SLOTS + 1) if not bits >> slot & 1) for bits in range(1 << SLOTS))

# To stores:  (SEAL, store, segment, epoch, leader)
#             (READ, store, segment, epoch, leader)
#             (STORE, store, segment, epoch, leader, first slot, entries, acked)
# To leaders: (SEALED, leader, store, segment, acked hint)
#             (CONTENT, leader, store, segment, acked hint, entries by slot, bits of the slots in doubt)
#             (STORED, leader, store, segment, incarnation, matched, bits of the slots that are there)
#             (STALE, leader, sealed epoch)
SEAL, READ, STORE, SEALED, CONTENT, STORED, STALE = range(7)
KINDS = ("SEAL", "READ", "STORE", "SEALED", "CONTENT", "STORED", "STALE")


def entry_text(entry: Entry | None) -> str:
    """An entry as a trace shows it: e101 with birth epoch 1 and stamp epoch 2 is `e101/1@2`."""
    if entry is None:
        return "-"
    kind, payload, birth, stamp = entry
    return f"{'ehb'[kind]}{payload if kind == EVENT else ''}/{birth}@{stamp}"


def message_text(message: Message) -> str:
    """A message as a trace shows it."""
    kind = message[0]
    if kind == STORE:
        _, store, segment, epoch, _, first, entries, acked = message
        listed = " ".join(map(entry_text, entries))
        return f"STORE to store {store}: segment {segment}, epoch {epoch}, from slot {first} [{listed}], acked {acked}"
    if kind in (SEAL, READ):
        return f"{KINDS[kind]} to store {message[1]}: segment {message[2]}, epoch {message[3]}"
    if kind == SEALED:
        return f"SEALED to leader {message[1]}: store {message[2]}, segment {message[3]}, acked hint {message[4]}"
    if kind == CONTENT:
        _, leader, store, segment, hint, entries, doubt = message
        listed = " ".join("?" if doubt >> slot & 1 else entry_text(entry) for slot, entry in enumerate(entries))
        return f"CONTENT to leader {leader}: store {store}, segment {segment}, acked hint {hint} [{listed}]"
    if kind == STORED:
        return f"STORED to leader {message[1]}: store {message[2]}, segment {message[3]}, matched {message[5]}"
    return f"STALE to leader {message[1]}: sealed epoch {message[2]}"
