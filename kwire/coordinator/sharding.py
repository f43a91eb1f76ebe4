"""Maps a group id or a transactional id to its shard, with the hash by which Kafka chooses the partition of an id."""

from collections.abc import Callable

# The maximum number of cached results, and of characters in a cached name. Java's hash is slow in Python.
CACHED_NAMES_MAX = 20_000
CACHED_NAME_LENGTH_MAX = 128
# The maximum number of names that `keys_of_shards` tries, per shard. Far fewer are needed.
KEYS_PER_SHARD_MAX = 1_000


class Sharding:
    """Maps names to shards, with a bounded cache."""

    __slots__ = ("_cache", "shard_count")

    def __init__(self, shard_count: int) -> None:
        self.shard_count = shard_count
        self._cache: dict[str, int] = {}

    def shard_of(self, key: str) -> int:
        index = self._cache.get(key)
        if index is None:
            index = _positive(java_hash(key)) % self.shard_count
            if len(key) <= CACHED_NAME_LENGTH_MAX:
                if len(self._cache) >= CACHED_NAMES_MAX:
                    self._cache.clear()
                self._cache[key] = index
        return index


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: base 31 over UTF-16 code units, wrapped to a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _positive(value: int) -> int:
    """Kafka's `Utils.abs`. It returns 0 for the smallest 32-bit integer, which has no positive counterpart."""
    return 0 if value == -(1 << 31) else abs(value)


def keys_of_shards(shard_count: int, shard_of: Callable[[str], int]) -> list[str]:
    """Return, for each shard, a name that maps to the shard. A command for a whole shard uses this name as its id."""
    keys: dict[int, str] = {}
    for number in range(shard_count * KEYS_PER_SHARD_MAX):
        keys.setdefault(shard_of(str(number)), str(number))
        if len(keys) == shard_count:
            return [keys[shard] for shard in range(shard_count)]
    raise ValueError(f"{shard_count} shards are too many: configure fewer partitions for the internal topic")
