"""The mistakes that a schedule can plant in the rules of the model."""

import enum


class Mistake(enum.Enum):
    """One wrong rule each, switched on in one place of the model.

    `row` is the scenario (B1 to B29) that the mistake belongs to, or the rule that it breaks; `requirements` are the
    lines of docs/requirements.md that a Stream Engine with this mistake would break.
    """

    row: str
    requirements: str
    text: str

    def __new__(cls, row: str, requirements: str, text: str) -> "Mistake":
        member = object.__new__(cls)
        member._value_ = text
        member.row, member.requirements, member.text = row, requirements, text
        return member

    # Enum's own hash is a Python function; the identity is what the model compares.
    __hash__ = object.__hash__

    # The epoch and the fence.
    LEASE_TRUSTED = "B1", "S4-17 S4-19", "a leader does not seal, because the lease of the old leader has expired"
    SEALING_IS_SEALED = "B3", "S4-19", "a leader takes a segment that another leader began to seal for sealed"
    FENCE_IN_SEAL_ONLY = "B4", "S4-18", "requests other than SEAL do not raise the sealed epoch"
    SEAL_IN_MEMORY = "B5", "S4-18", "a store forgets its sealed epoch when it crashes"
    NO_EPOCH_CHECK = "B12", "S4-18", "a store accepts entries of a leader with a smaller epoch"
    EPOCH_TWICE = "I4", "S4-16", "the master gives one epoch to two leaders"
    EPOCH_RESUMED = "I4", "S4-16", "a leader that restarts goes on in its old epoch"
    ANSWERS_MISSING = "R-1", "S4-19 S4-28", "recovery starts with one answer fewer than R"

    # What recovery decides.
    OLD_STAMP_KEPT = "B6", "S4-38", "recovery leaves the old stamp epoch on recovered entries"
    MAJORITY_VOTE = "B7", "S4-29", "recovery takes the content that most answers agree on"
    LONGEST_LOG = "B7", "S4-29", "recovery takes the log of the store with the largest index"
    BEST_REPLICA = "B8", "S4-24", "recovery takes the log of the store with the largest acked index"
    FIRST_REPLICA = "B13", "S4-24", "recovery takes the log of the first store that answers"
    BASE_FROM_ONE = "B29", "S4-24", "slots below the largest acked index come from the store that reported it"
    BIRTH_OVERWRITTEN = "B26", "S4-38", "recovery overwrites the birth epoch too"
    BRIDGES_IGNORED = "bridge rule", "S4-39", "recovery ignores the bridges of earlier recoveries"
    HOLE_UNDER_PREFIX = "I15", "S4-37", "recovery under the prefix policy writes a hole and keeps the events after it"
    CLOSED_TOO_EARLY = "I19", "S4-25", "a segment is closed when one store has the recovered entries"
    NO_CAS_GUARD = "2.3", "S4-13 S4-25", "the master lets a leader with an old epoch create and close segments"

    # The acknowledgement.
    ACKED_TOO_EARLY = "2.1", "S4-12 S4-28", "an event is acknowledged with one copy fewer than W"
    ANSWERS_COUNTED = "B9", "S4-12", "a leader counts answers, so that one store counts twice"
    ACK_WITH_GAP = "B11", "S4-20", "an event is acknowledged before the events in front of it"
    ACK_BEFORE_SEALED = "I17", "S4-26", "events of segment k+1 are acknowledged before segment k is sealed"
    THIRD_OPEN_SEGMENT = "I17", "S4-27", "a leader opens a third unsealed segment"
    LEFTOVERS_MATCHED = "I12", "S4-35", "a store counts entries of an earlier leader in its matched index"

    # What a store lost.
    LOST_IS_ABSENT = "B10", "S4-3", "a store that lost unsynced entries answers that it never had them"
    CUT_AT_DAMAGE = "B15", "S4-3", "a store cuts its log at a damaged entry, though valid entries follow"
    FOREIGN_ENTRY = "B16", "S4-33", "a store accepts an old entry of a recycled file as part of its log"
    SYNC_RETRIED = "B17", "S4-3", "a store retries a failed sync and trusts the second answer"
    DAMAGE_SERVED = "B19", "S4-3", "a store does not notice damaged entries"
    WIPED_REJOINS = "B20", "S4-3", "a wiped store comes back under its old id"
    FILE_NOT_IN_DIRECTORY = "B28", "S4-3", "a crash removes the file of a new segment, because only the file was synced"
    DOUBT_FORGOTTEN = "I21", "S4-3", "a store that restarts forgets which entries it found damaged"
    COPY_SET_CHANGED = "B24", "S4-42", "the master changes the copy set of an open segment"
    REPLACED_WITHOUT_COPY = "2.8", "S4-41", "the master replaces a store of a sealed segment before the new one has it"

    # Reads.
    UNACKED_SERVED = "2.5", "S4-12 S4-32", "a store serves entries beyond its acked index"
    UNMATCHED_SERVED = "2.5", "S4-30 S4-38", "a store serves entries beyond its matched index"
