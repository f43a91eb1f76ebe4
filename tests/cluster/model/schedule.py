"""Random schedules by seed, their repetition step by step, and their shortest form."""

from collections.abc import Sequence
from random import Random

from tests.cluster.model.checks import Violation
from tests.cluster.model.entries import SLOTS, STORE, message_text
from tests.cluster.model.mistakes import Mistake
from tests.cluster.model.settings import Setting
from tests.cluster.model.world import ARRIVES, FATES, LOST, NOT_SYNCED, SHORTENED, STAYS, Step, World

EPOCHS_MAX = 6
# A schedule begins with an open segment and fewer events than this.
FIRST_EVENTS_MAX = 4
# The end of a schedule: a last leader, and at most this many deliveries in front of each of its actions.
LAST_ACTIONS = 8
LAST_DELIVERIES_MAX = 60
CHOICES = 1 << 16
# A choice that resends (see Leader.act).
RESEND = 7


class Failure(AssertionError):
    """A schedule broke an invariant."""

    def __init__(self, world: World, violation: Violation) -> None:
        super().__init__(str(violation))
        self.setting = world.setting
        self.mistake = world.mistake
        self.strict = world.strict
        self.steps = world.steps
        self.invariant = violation.invariant


def run(setting: Setting, random: Random, mistake: Mistake | None = None, *, strict: bool = True) -> World:
    """Run one random schedule; raise Failure if an invariant breaks."""
    world = World(setting, mistake, strict=strict)
    steps = world.steps
    try:
        _step(world, steps, ("elect",))
        for _ in range(1 + int(random.random() * FIRST_EVENTS_MAX)):
            _step(world, steps, ("act", 0, int(random.random() * CHOICES) & ~7))
        _go(world, steps, random)
        _finish(world, steps, random)
        world.check_end()
    except Violation as violation:
        raise Failure(world, violation) from None
    return world


def _go(world: World, steps: list[Step], random: Random) -> None:
    weather, chance = world.setting.weather, random.random
    bag, leaders, stores = world.bag, world.leaders, len(world.stores)
    # The limits of the intervals of chance that belong to each kind of step.
    act = weather.act
    elect = act + weather.elect
    read = elect + weather.read
    crash_leader = read + weather.crash_leader
    crash_store = crash_leader + weather.crash_store
    sync = crash_store + weather.sync
    damage = sync + weather.damage
    wipe = damage + weather.wipe
    replace = wipe + weather.replace
    for _ in range(world.setting.steps):
        drawn = chance()
        step: Step
        if drawn >= replace and bag:
            _deliver_any(world, steps, random)
            continue
        if drawn < act or drawn >= replace:
            step = ("act", _recent(len(leaders), chance()), int(chance() * CHOICES))
        elif drawn < elect:
            if len(leaders) >= EPOCHS_MAX:
                continue
            if chance() < weather.forget:
                _step(world, steps, ("forget",))
            step = ("elect",)
        elif drawn < read:
            step = ("read", int(chance() * stores), _recent(len(world.master.segments), chance()))
        elif drawn < crash_leader:
            step = ("crash_leader", _recent(len(leaders), chance()))
        elif drawn < crash_store:
            step = ("crash_store", int(chance() * stores), int(chance() * (1 << SLOTS)), chance() < 0.3)
        elif drawn < sync:
            step = ("sync_store", int(chance() * stores))
        elif drawn < damage:
            segment = _recent(len(world.master.segments), chance())
            step = ("damage", int(chance() * stores), segment, int(chance() * 4))
        elif drawn < wipe:
            step = ("wipe", int(chance() * stores))
        else:
            segment = _recent(len(world.master.segments), chance())
            step = ("replace", segment, int(chance() * world.setting.n))
        steps.append(step)
        getattr(world, step[0])(*step[1:])


def _recent(count: int, drawn: float) -> int:
    """A number below `count`, mostly one of the last."""
    return count - 1 - int(drawn * drawn * count) if count else 0


def _deliver_any(world: World, steps: list[Step], random: Random, *, calm: bool = False) -> None:
    weather, bag = world.setting.weather, world.bag
    place = int(random.random() * len(bag))
    message, last = bag[place], bag.pop()
    if place < len(bag):
        bag[place] = last
    drawn = random.random()
    fate = ARRIVES
    if drawn >= 1 - weather.shortened:
        if message[0] == STORE:
            fate = SHORTENED
    elif calm:
        pass
    elif drawn < weather.lost:
        fate = LOST
    elif drawn < weather.lost + weather.stays:
        fate = STAYS
    elif message[0] == STORE and drawn < weather.lost + weather.stays + weather.not_synced:
        fate = NOT_SYNCED
    steps.append(("deliver", message, fate))
    world.deliver(message, fate)


def _finish(world: World, steps: list[Step], random: Random) -> None:
    """A last leader recovers what is open without a fault, and readers read every replica."""
    last = len(world.leaders)
    if random.random() < 0.5:
        _step(world, steps, ("forget",))
    _step(world, steps, ("elect",))
    for _ in range(LAST_ACTIONS):
        _deliver_all(world, steps, random, calm=True)
        if not world.master.unsealed():
            break
        _step(world, steps, ("act", last, RESEND))
    _step(world, steps, ("resend", last))
    _deliver_all(world, steps, random, calm=False)
    for store in range(len(world.stores)):
        for segment in range(len(world.master.segments)):
            _step(world, steps, ("read", store, segment))


def _deliver_all(world: World, steps: list[Step], random: Random, *, calm: bool) -> None:
    for _ in range(LAST_DELIVERIES_MAX):
        if not world.bag:
            break
        _deliver_any(world, steps, random, calm=calm)


def _step(world: World, steps: list[Step], step: Step) -> None:
    steps.append(step)
    getattr(world, step[0])(*step[1:])


def replay(
    setting: Setting, steps: Sequence[Step], mistake: Mistake | None, *, strict: bool, lines: list[str] | None = None
) -> Violation | None:
    """Apply steps; those that are no longer possible, because steps in front of them are missing, have no effect.

    `lines` receives a line for each step that had an effect.
    """
    world = World(setting, mistake, strict=strict)
    try:
        for step in steps:
            if step[0] == "deliver":
                if step[1] not in world.bag:
                    continue
                world.bag.remove(step[1])
            if lines is not None:
                lines.append(_step_text(step))
            done = getattr(world, step[0])(*step[1:])
            if lines is not None and done is not None:
                lines[-1] = f"leader {step[1]} {done}"
        world.check_end()
    except Violation as violation:
        return violation
    return None


def shortest(failure: Failure) -> list[Step]:
    """Drop steps, larger groups first, as long as the same invariant breaks."""
    steps = failure.steps
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = steps[:start] + steps[start + size :]
            violation = replay(failure.setting, fewer, failure.mistake, strict=failure.strict)
            if violation is not None and violation.invariant == failure.invariant:
                steps = fewer
            else:
                start += size
        size //= 2
    return steps


def trace(failure: Failure, steps: Sequence[Step]) -> str:
    """Steps of a failed schedule in lines that a person can read."""
    lines: list[str] = []
    violation = replay(failure.setting, steps, failure.mistake, strict=failure.strict, lines=lines)
    return "\n".join([f"{len(steps)} of {len(failure.steps)} steps:", *lines, str(violation)])


def _step_text(step: Step) -> str:
    if step[0] == "deliver":
        return f"{FATES[step[2]]}: {message_text(step[1])}"
    return " ".join(map(str, step))
