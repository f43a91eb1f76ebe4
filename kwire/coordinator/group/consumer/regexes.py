"""Which topics an expression means. Names are looked at in turns, so that many topics do not hold up the loop.

An automaton's steps are remembered as they are found: most characters of most names cost one look into a table. What
was found for a revision of the catalogue is kept for the next group that asks the same.
"""

from collections.abc import Collection, Mapping, Sequence

from kwire.coordinator.group.consumer.patterns import WORD, At, InvalidPattern, Program, State, parse
from kwire.coordinator.group.topics_view import TopicsView

# Remembered steps of one automaton; when there are more, it begins again with none.
REMEMBERED_STATES_MAX = 256
# How much one turn does, in states of an automaton that are looked at: some five milliseconds.
WORK_PER_TURN = 20_000
# What reading a name costs besides, in the same coin.
WORK_PER_NAME = 10
# Results that are kept for others who ask the same.
RESULTS_MAX = 16


class _Place:
    """Where an automaton can be after some characters: states not yet followed, and what the last character was."""

    __slots__ = ("following", "is_accepting", "is_start", "is_word", "states")

    def __init__(self, states: frozenset[State], *, is_start: bool, is_word: bool) -> None:
        self.states = states
        self.is_start = is_start
        self.is_word = is_word
        self.following: dict[str, _Place] = {}
        self.is_accepting: bool | None = None


_NOWHERE = _Place(frozenset(), is_start=False, is_word=False)
_NOWHERE.is_accepting = False


class Matcher:
    """One expression. `work` counts what matching has cost."""

    def __init__(self, pattern: str) -> None:
        self._program: Program = parse(pattern)
        self.work = 0
        self._forget()

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        self.work += WORK_PER_NAME
        place = self._start
        for character in name:
            following = place.following.get(character)
            if following is None:
                following = self._step(place, character)
            if following is _NOWHERE:
                return False
            place = following
        if place.is_accepting is None:
            at = At(place.is_start, True, place.is_word, False)
            place.is_accepting = self._program.end in self._closure(place, at)
        return place.is_accepting

    def _forget(self) -> None:
        self._places: dict[tuple[frozenset[State], bool], _Place] = {}
        self._start = _Place(frozenset({self._program.start}), is_start=True, is_word=False)

    def _step(self, place: _Place, character: str) -> _Place:
        code = ord(character)
        if code >= 128:
            return _NOWHERE
        is_word = bool(WORD >> code & 1)
        at = At(place.is_start, False, place.is_word, is_word)
        reached = frozenset(
            following
            for state in self._closure(place, at)
            if state.mask is not None and state.mask >> code & 1
            for following in state.follows
        )
        if not reached:
            place.following[character] = _NOWHERE
            return _NOWHERE
        key = reached, is_word
        known = self._places.get(key)
        if known is None:
            if len(self._places) >= REMEMBERED_STATES_MAX:
                self._forget()
            known = self._places[key] = _Place(reached, is_start=False, is_word=is_word)
        place.following[character] = known
        return known

    def _closure(self, place: _Place, at: At) -> set[State]:
        """All states that can be come to without another character."""
        found = set(place.states)
        open_states = list(found)
        while open_states:
            state = open_states.pop()
            if state.mask is not None or (state.assertion is not None and not state.assertion(at)):
                continue
            for following in state.follows:
                if following not in found:
                    found.add(following)
                    open_states.append(following)
        self.work += len(found)
        return found


class Resolution:
    """The topics of some expressions at one revision of the catalogue, found turn by turn."""

    def __init__(
        self, revision: int, names: Sequence[str], known: Mapping[str, frozenset[str]], wanted: Collection[str]
    ) -> None:
        self.revision = revision
        self.wanted = frozenset(wanted)
        self.topics: dict[str, frozenset[str]] = {one: known[one] for one in wanted if one in known}
        self._names = names
        self._open = [one for one in wanted if one not in known]
        self._matcher: Matcher | None = None
        self._position = 0
        self._matched: list[str] = []

    @property
    def is_done(self) -> bool:
        return not self._open

    def advance(self) -> bool:
        """Do one turn's work; whether all is found."""
        work_left = WORK_PER_TURN
        while self._open and work_left > 0:
            matcher = self._matcher
            if matcher is None:
                try:
                    matcher = self._matcher = Matcher(self._open[0])
                except InvalidPattern:
                    # A member was let in with it, perhaps by another server: it means no topic here.
                    self.topics[self._open.pop(0)] = frozenset()
                    continue
                self._position, self._matched = 0, []
            work_end = matcher.work + work_left
            names, position = self._names, self._position
            while position < len(names) and matcher.work < work_end:
                if matcher.matches(names[position]):
                    self._matched.append(names[position])
                position += 1
            self._position = position
            work_left = work_end - matcher.work
            if position == len(names):
                self.topics[self._open.pop(0)] = frozenset(self._matched)
                self._matcher = None
        return not self._open


class RegexResolver:
    """Finds topics for every group of a coordinator."""

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self._revision: int | None = None
        self._names: Sequence[str] = ()
        self._results: dict[str, frozenset[str]] = {}

    def begin(self, wanted: Collection[str]) -> Resolution:
        revision = self._topics.revision
        if revision != self._revision:
            self._names = tuple(self._topics.names())
            self._results = {}
            self._revision = revision
        return Resolution(revision, self._names, self._results, wanted)

    def keep(self, resolution: Resolution) -> None:
        """Let others have what was found."""
        if resolution.revision == self._revision:
            for pattern, topics in resolution.topics.items():
                if len(self._results) >= RESULTS_MAX:
                    self._results.clear()
                self._results[pattern] = topics
