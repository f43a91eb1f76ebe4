"""For each mistake, a setting in which random schedules soon find it."""

from tests.cluster.model.mistakes import Mistake
from tests.cluster.model.settings import (
    BACK_PRESSURE,
    BAD_DISKS,
    CALM,
    CRASHES,
    ELECTIONS,
    INTERRUPTIONS,
    LOSSY,
    REPLACEMENTS,
    Setting,
    Weather,
)

MAJORITY = (3, 2, 2)
# Few copies are needed for an acknowledgement, many answers for a recovery.
FAST_ACK = (5, 2, 4)

MORE_CRASHES = Weather("more crashes", crash_store=0.15, elect=0.06, forget=0.0)
MORE_BAD_DISKS = Weather("more bad disks", crash_store=0.10, damage=0.10, not_synced=0.20, forget=0.0)
MORE_WIPES = Weather("more wipes", wipe=0.02, forget=0.0)
MORE_REPLACEMENTS = Weather("more replacements", replace=0.10, crash_store=0.0)
LATE_MESSAGES = Weather("late messages", elect=0.05, lost=0.15, stays=0.15, forget=0.0)

BIASES = {
    Mistake.LEASE_TRUSTED: Setting(MAJORITY, parallel=True, weather=ELECTIONS),
    Mistake.SEALING_IS_SEALED: Setting(FAST_ACK, sparse=True, weather=ELECTIONS),
    Mistake.FENCE_IN_SEAL_ONLY: Setting(MAJORITY, weather=LATE_MESSAGES),
    Mistake.SEAL_IN_MEMORY: Setting(MAJORITY, weather=MORE_CRASHES),
    Mistake.NO_EPOCH_CHECK: Setting(MAJORITY, weather=INTERRUPTIONS),
    Mistake.EPOCH_TWICE: Setting(MAJORITY, weather=INTERRUPTIONS),
    Mistake.EPOCH_RESUMED: Setting(FAST_ACK, weather=ELECTIONS),
    Mistake.ANSWERS_MISSING: Setting(MAJORITY, parallel=True, weather=INTERRUPTIONS),
    Mistake.OLD_STAMP_KEPT: Setting(MAJORITY, weather=INTERRUPTIONS),
    Mistake.MAJORITY_VOTE: Setting(FAST_ACK, weather=BACK_PRESSURE),
    Mistake.LONGEST_LOG: Setting(FAST_ACK, parallel=True, weather=BACK_PRESSURE),
    Mistake.BEST_REPLICA: Setting(FAST_ACK, weather=BACK_PRESSURE),
    Mistake.FIRST_REPLICA: Setting(FAST_ACK, weather=BACK_PRESSURE),
    Mistake.BASE_FROM_ONE: Setting(MAJORITY, sparse=True, weather=INTERRUPTIONS),
    Mistake.BIRTH_OVERWRITTEN: Setting(MAJORITY, weather=CALM),
    Mistake.BRIDGES_IGNORED: Setting(MAJORITY, weather=ELECTIONS),
    Mistake.HOLE_UNDER_PREFIX: Setting(MAJORITY, weather=LOSSY),
    Mistake.CLOSED_TOO_EARLY: Setting(MAJORITY, parallel=True, weather=LOSSY),
    Mistake.NO_CAS_GUARD: Setting(MAJORITY, weather=INTERRUPTIONS),
    Mistake.ACKED_TOO_EARLY: Setting(MAJORITY, weather=ELECTIONS),
    Mistake.ANSWERS_COUNTED: Setting(MAJORITY, weather=CALM),
    Mistake.ACK_WITH_GAP: Setting(MAJORITY, parallel=True, weather=LOSSY),
    Mistake.ACK_BEFORE_SEALED: Setting(MAJORITY, parallel=True, weather=CALM),
    Mistake.THIRD_OPEN_SEGMENT: Setting(MAJORITY, parallel=True, weather=LOSSY),
    Mistake.LEFTOVERS_MATCHED: Setting(MAJORITY, weather=BACK_PRESSURE, steps=40),
    Mistake.LOST_IS_ABSENT: Setting(MAJORITY, relaxed=True, weather=LOSSY),
    Mistake.CUT_AT_DAMAGE: Setting(MAJORITY, weather=MORE_BAD_DISKS),
    Mistake.FOREIGN_ENTRY: Setting(FAST_ACK, parallel=True, weather=CRASHES),
    Mistake.SYNC_RETRIED: Setting(MAJORITY, weather=MORE_BAD_DISKS),
    Mistake.DAMAGE_SERVED: Setting(FAST_ACK, sparse=True, weather=BAD_DISKS),
    Mistake.WIPED_REJOINS: Setting(MAJORITY, weather=MORE_WIPES),
    Mistake.FILE_NOT_IN_DIRECTORY: Setting(MAJORITY, parallel=True, weather=CRASHES),
    Mistake.DOUBT_FORGOTTEN: Setting(MAJORITY, weather=MORE_BAD_DISKS),
    Mistake.COPY_SET_CHANGED: Setting(MAJORITY, parallel=True, weather=REPLACEMENTS),
    Mistake.REPLACED_WITHOUT_COPY: Setting((1, 1, 1), weather=MORE_REPLACEMENTS),
    Mistake.UNACKED_SERVED: Setting(MAJORITY, weather=LOSSY),
    Mistake.UNMATCHED_SERVED: Setting(MAJORITY, sparse=True, weather=BACK_PRESSURE, steps=40),
}
