"""Finds the topics that match a regular expression. Works in chunks, so that many topics do not block the event loop.

The expression's automaton is an NFA. The matcher computes DFA transitions when they are first needed, and caches them
(a lazy DFA). So most characters of most names need one dictionary lookup. The results of a search are cached until the
topics change, for other groups with the same expression.
"""

from collections.abc import Collection, Mapping, Sequence

from kwire.coordinator.group.consumer.patterns import WORD, At, InvalidPattern, Program, State, parse
from kwire.coordinator.group.topics_view import TopicsView

# The maximum number of cached DFA states of one expression. When there are more, the cache is cleared.
CACHED_STATES_MAX = 256
# The work of one chunk, in visited NFA states. It takes about five milliseconds (chunks of `concurrency/chunking.py`
# take about half a millisecond).
WORK_PER_CHUNK = 20_000
# The fixed cost of matching one name, in visited NFA states.
WORK_PER_NAME = 10
# The maximum number of expressions with a cached result.
RESULTS_MAX = 16


class _DfaState:
    """A DFA state: the NFA states that are reached after the characters read so far.

    `states` does not include NFA states that are reached from these without reading a character. `is_word` is whether
    the last character is a word character, for the assertions \\b and \\B.
    """

    __slots__ = ("following", "is_accepting", "is_start", "is_word", "states")

    def __init__(self, states: frozenset[State], *, is_start: bool, is_word: bool) -> None:
        self.states = states
        self.is_start = is_start
        self.is_word = is_word
        self.following: dict[str, _DfaState] = {}
        self.is_accepting: bool | None = None


_DEAD_STATE = _DfaState(frozenset(), is_start=False, is_word=False)
_DEAD_STATE.is_accepting = False


class Matcher:
    """Matches names against one expression. `work` is the cost so far, in visited NFA states."""

    def __init__(self, pattern: str) -> None:
        self._program: Program = parse(pattern)
        self.work = 0
        self._clear_cache()

    def matches(self, name: str) -> bool:
        """Return whether the whole name matches."""
        self.work += WORK_PER_NAME
        current = self._start
        for character in name:
            following = current.following.get(character)
            if following is None:
                following = self._step(current, character)
            if following is _DEAD_STATE:
                return False
            current = following
        if current.is_accepting is None:
            at = At(current.is_start, True, current.is_word, False)
            current.is_accepting = self._program.end in self._closure(current, at)
        return current.is_accepting

    def _clear_cache(self) -> None:
        self._dfa_states: dict[tuple[frozenset[State], bool], _DfaState] = {}
        self._start = _DfaState(frozenset({self._program.start}), is_start=True, is_word=False)

    def _step(self, current: _DfaState, character: str) -> _DfaState:
        code = ord(character)
        if code >= 128:
            return _DEAD_STATE
        is_word = bool(WORD >> code & 1)
        at = At(current.is_start, False, current.is_word, is_word)
        reached = frozenset(
            following
            for state in self._closure(current, at)
            if state.mask is not None and state.mask >> code & 1
            for following in state.follows
        )
        if not reached:
            current.following[character] = _DEAD_STATE
            return _DEAD_STATE
        key = reached, is_word
        known = self._dfa_states.get(key)
        if known is None:
            if len(self._dfa_states) >= CACHED_STATES_MAX:
                self._clear_cache()
            known = self._dfa_states[key] = _DfaState(reached, is_start=False, is_word=is_word)
        current.following[character] = known
        return known

    def _closure(self, current: _DfaState, at: At) -> set[State]:
        """Return all NFA states that can be reached from `current` without reading another character."""
        found = set(current.states)
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
    """A search for the topics that match some expressions, at one revision of the topic list. It is done in chunks."""

    def __init__(
        self, revision: int, names: Sequence[str], known: Mapping[str, frozenset[str]], wanted: Collection[str]
    ) -> None:
        self.revision = revision
        self.wanted = frozenset(wanted)
        self.topics: dict[str, frozenset[str]] = {one: known[one] for one in wanted if one in known}
        self._names = names
        self._unresolved = [one for one in wanted if one not in known]
        self._matcher: Matcher | None = None
        self._position = 0
        self._matched: list[str] = []

    @property
    def is_done(self) -> bool:
        return not self._unresolved

    def advance(self) -> bool:
        """Run one chunk of the search. Return True if the search is complete."""
        work_left = WORK_PER_CHUNK
        while self._unresolved and work_left > 0:
            matcher = self._matcher
            if matcher is None:
                try:
                    matcher = self._matcher = Matcher(self._unresolved[0])
                except InvalidPattern:
                    # A member's record contains this invalid expression. Another server may have written the record.
                    # The expression matches no topic.
                    self.topics[self._unresolved.pop(0)] = frozenset()
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
                self.topics[self._unresolved.pop(0)] = frozenset(self._matched)
                self._matcher = None
        return not self._unresolved


class RegexResolver:
    """Starts the topic searches of all groups of a coordinator, and caches the results."""

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

    def cache_result(self, resolution: Resolution) -> None:
        """Cache the result of a search for other groups. Does nothing if topics have changed since the search began."""
        if resolution.revision == self._revision:
            for pattern, topics in resolution.topics.items():
                if len(self._results) >= RESULTS_MAX:
                    self._results.clear()
                self._results[pattern] = topics
