"""Which shard keeps a group or a transactional id: Kafka's choice, so that its tools find it."""

from collections.abc import Callable

# Names whose shard is remembered, if they are not longer than this: Java's hash takes Python a while.
REMEMBERED_NAMES_MAX = 20_000
REMEMBERED_NAME_CHARACTERS_MAX = 128
# Names tried for each shard until one falls on it, many times what is ever needed.
KEYS_PER_SHARD_MAX = 1_000


class Sharding:
    """Maps names to shards."""

    __slots__ = ("_remembered", "shard_count")

    def __init__(self, shard_count: int) -> None:
        self.shard_count = shard_count
        self._remembered: dict[str, int] = {}

    def shard_of(self, key: str) -> int:
        index = self._remembered.get(key)
        if index is None:
            index = _positive(java_hash(key)) % self.shard_count
            if len(key) <= REMEMBERED_NAME_CHARACTERS_MAX:
                if len(self._remembered) >= REMEMBERED_NAMES_MAX:
                    self._remembered.clear()
                self._remembered[key] = index
        return index


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: 31-based over UTF-16 units, wrapped to a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _positive(value: int) -> int:
    """Kafka's own `abs`: the smallest integer has no positive counterpart and becomes zero."""
    return 0 if value == -(1 << 31) else abs(value)


def keys_of_shards(shard_count: int, shard_of: Callable[[str], int]) -> list[str]:
    """For each shard a name that it keeps, under which a command that concerns the whole shard reaches it."""
    keys: dict[int, str] = {}
    for number in range(shard_count * KEYS_PER_SHARD_MAX):
        keys.setdefault(shard_of(str(number)), str(number))
        if len(keys) == shard_count:
            return [keys[shard] for shard in range(shard_count)]
    raise ValueError(f"{shard_count} shards are too many to find a name for each")
