"""Finds the topics that match a regular expression and that members may describe.

A search works in chunks, so that many topics do not block the event loop.

The expression's automaton is an NFA. The matcher computes DFA transitions when they are first needed, and caches them
(a lazy DFA). So most characters of most names need one dictionary lookup. The results of a search are cached until the
topics change, for other groups with the same expression. This cache has all matching topics, whoever may describe them.
The rights of the members are applied after that, per group.

An expression of a group in a scope is matched against the plain names of the topics of the same scope.
"""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from kwire.coordinator.group.consumer.patterns import WORD, At, InvalidPattern, Program, State, parse
from kwire.coordinator.group.topics_view import TopicsView

# The maximum number of cached DFA states of one expression. When there are more, the cache is cleared.
CACHED_STATES_MAX = 256
# The work of one chunk, in visited NFA states. It takes about five milliseconds (chunks of `concurrency/chunking.py`
# take about half a millisecond).
WORK_PER_CHUNK = 20_000
# The fixed cost of matching one name, in visited NFA states.
WORK_PER_NAME = 10
# The cost of a name that does not belong to the scope of the group, in visited NFA states.
WORK_PER_SKIPPED_NAME = 2
# The cost of checking whether a client may describe a topic, in visited NFA states.
WORK_PER_CHECK = 20
# The revisions of topics that were not found by a search since the start of the server.
NO_REVISION = -1
NO_TOPICS: frozenset[str] = frozenset()
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


class TopicAccess(NamedTuple):
    """Which topics a client may describe. `revision` changes whenever the results of `allows` may change.

    Accesses with the same `key` (principal and host) allow the same topics.
    """

    key: Hashable
    revision: int
    allows: Callable[[str], bool]


class VisibleTopics(NamedTuple):
    """The topics that match an expression and that one client may describe, at some revisions of topics and rights."""

    topics: frozenset[str]
    topics_revision: int
    access_revision: int


# The topics of an expression for one client, by the expression and the key of the client's access.
Visible = dict[tuple[str, Hashable], VisibleTopics]


class Resolution:
    """A search for the topics that match some expressions, at one revision of the topic list. It is done in chunks.

    `topics` has all matching topics. After the matching, `visible` gets the topics that the clients of `accesses` may
    describe. An access is in `accesses` with each expression of its members. `prefix` is that of the group's scope.
    """

    def __init__(
        self,
        revision: int,
        names: Sequence[str],
        known: Mapping[str, frozenset[str]],
        wanted: Collection[str],
        accesses: Collection[tuple[str, TopicAccess]] = (),
        prefix: str = "",
    ) -> None:
        self.revision = revision
        self.prefix = prefix
        self.wanted = frozenset(wanted)
        self.topics: dict[str, frozenset[str]] = {one: known[one] for one in wanted if one in known}
        self._names = names
        self._unresolved = [one for one in wanted if one not in known]
        self._matcher: Matcher | None = None
        self._position = 0
        self._matched: list[str] = []
        self.visible: Visible = {}
        self._unchecked = list(accesses)
        # The topics of the first of the `_unchecked`, while they are checked.
        self._candidates: Sequence[str] | None = None

    @property
    def is_done(self) -> bool:
        return not self._unresolved and not self._unchecked

    def advance(self) -> bool:
        """Run one chunk of the search. Return True if the search is complete."""
        self._check_access(self._match(WORK_PER_CHUNK))
        return self.is_done

    def _match(self, work_left: int) -> int:
        """Find matching topics. Return the work that is left for this chunk."""
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
            names, position, prefix = self._names, self._position, self.prefix
            while position < len(names) and matcher.work < work_end:
                name = names[position]
                if not name.startswith(prefix):
                    matcher.work += WORK_PER_SKIPPED_NAME
                elif matcher.matches(name.removeprefix(prefix)):
                    self._matched.append(name)
                position += 1
            self._position = position
            work_left = work_end - matcher.work
            if position == len(names):
                self.topics[self._unresolved.pop(0)] = frozenset(self._matched)
                self._matcher = None
        return work_left

    def _check_access(self, work_left: int) -> None:
        """Check which of the matching topics the clients may describe. All expressions have been matched."""
        while self._unchecked and not self._unresolved and work_left > 0:
            regex, access = self._unchecked[0]
            if self._candidates is None:
                self._candidates = tuple(self.topics[regex])
                self._position, self._matched = 0, []
            end = min(self._position + work_left // WORK_PER_CHECK + 1, len(self._candidates))
            some = self._candidates[self._position : end]
            self._matched += filter(access.allows, some)
            work_left -= WORK_PER_CHECK * (len(some) + 1)
            self._position = end
            if end == len(self._candidates):
                found = VisibleTopics(frozenset(self._matched), self.revision, access.revision)
                self.visible[regex, access.key] = found
                self._candidates = None
                del self._unchecked[0]


class RegexResolver:
    """Starts the topic searches of all groups of a coordinator, and caches the results."""

    def __init__(self, topics: TopicsView) -> None:
        self._topics = topics
        self._revision: int | None = None
        self._names: Sequence[str] = ()
        # The results by prefix and expression.
        self._results: dict[tuple[str, str], frozenset[str]] = {}

    def begin(
        self, wanted: Collection[str], accesses: Collection[tuple[str, TopicAccess]] = (), prefix: str = ""
    ) -> Resolution:
        """Begin a search for a group of the scope with this prefix, or of no scope if it is empty."""
        revision = self._topics.revision
        if revision != self._revision:
            self._names = tuple(self._topics.names())
            self._results = {}
            self._revision = revision
        known = {one: self._results[prefix, one] for one in wanted if (prefix, one) in self._results}
        return Resolution(revision, self._names, known, wanted, accesses, prefix)

    def cache_result(self, resolution: Resolution) -> None:
        """Cache the result of a search for other groups. Does nothing if topics have changed since the search began."""
        if resolution.revision == self._revision:
            for pattern, topics in resolution.topics.items():
                if len(self._results) >= RESULTS_MAX:
                    self._results.clear()
                self._results[resolution.prefix, pattern] = topics


class Visibility:
    """Which topics the members of one group may describe. Only in memory: each heartbeat has the access of its member.

    A member is unknown from a restart until its next heartbeat. Until then it keeps the topics that are stored for its
    expression.
    """

    __slots__ = ("_accesses", "_visible", "is_changed")

    def __init__(self) -> None:
        # The accesses of members with an expression. None is a client that may describe all topics.
        self._accesses: dict[str, TopicAccess | None] = {}
        self._visible: Visible = {}
        # Whether the topics of a member have changed and the group epoch has not been increased since then.
        self.is_changed = False

    def set(self, member_id: str, regex: str, access: TopicAccess | None, stored: frozenset[str] | None) -> None:
        """Store the access of a member. `stored` are the member's topics if the group has them from its log."""
        if access is not None and stored is not None and member_id not in self._accesses:
            self._visible.setdefault((regex, access.key), VisibleTopics(stored, NO_REVISION, NO_REVISION))
        self._accesses[member_id] = access

    def remove(self, member_id: str) -> None:
        self._accesses.pop(member_id, None)

    def keep(self, regexes: Mapping[str, str]) -> None:
        """Remove all but these members and their expressions."""
        if not self._accesses and not self._visible:
            return
        self._accesses = {one: access for one, access in self._accesses.items() if one in regexes}
        used = {(regexes[one], access.key) for one, access in self._accesses.items() if access is not None}
        self._visible = {at: seen for at, seen in self._visible.items() if at in used}

    def is_current(self, member_id: str, regex: str) -> bool:
        """Return whether the topics of a member are known for its newest access."""
        access = self._accesses.get(member_id)
        if access is None:
            return True
        seen = self._visible.get((regex, access.key))
        return seen is not None and seen.access_revision == access.revision

    def outdated(self, regexes: Mapping[str, str], topics_revision: int) -> list[tuple[str, TopicAccess]]:
        """Return the accesses that a search has to check, with their expressions."""
        found: dict[tuple[str, Hashable], TopicAccess] = {}
        for member_id, regex in regexes.items():
            access = self._accesses.get(member_id)
            if access is None:
                continue
            at = regex, access.key
            newest = found.get(at)
            if newest is None or newest.revision < access.revision:
                found[at] = access
        return [(at[0], access) for at, access in found.items() if self._is_outdated(at, access, topics_revision)]

    def _is_outdated(self, at: tuple[str, Hashable], access: TopicAccess, topics_revision: int) -> bool:
        seen = self._visible.get(at)
        return seen is None or seen[1:] != (topics_revision, access.revision)

    def update(self, visible: Visible) -> None:
        """Store the result of a search."""
        for at, seen in visible.items():
            known = self._visible.get(at)
            self.is_changed |= known is None or known.topics != seen.topics
            self._visible[at] = seen

    def union(
        self, regexes: Mapping[str, str], regex: str, matches: frozenset[str], stored: frozenset[str]
    ) -> frozenset[str]:
        """Return the topics of an expression that at least one of its members may describe.

        `matches` are all matching topics. `stored` is the previous result; unknown members keep it.
        """
        members = [one for one, its_regex in regexes.items() if its_regex == regex]
        known = {self._accesses[one] for one in members if one in self._accesses}
        if None in known:
            return matches
        keys = {access.key for access in known if access is not None}
        found = [seen.topics for key in keys if (seen := self._visible.get((regex, key))) is not None]
        if any(one not in self._accesses for one in members):
            found.append(stored & matches)
        return found[0] if len(found) == 1 else NO_TOPICS.union(*found)

    def of(self, member_id: str, regex: str, resolved: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the topics that a member has by its expression. `resolved` has the stored topics of expressions."""
        topics = resolved.get(regex, NO_TOPICS)
        access = self._accesses.get(member_id)
        if access is None:
            return topics
        seen = self._visible.get((regex, access.key))
        if seen is None:
            return NO_TOPICS
        return topics if topics is seen.topics else topics & seen.topics
