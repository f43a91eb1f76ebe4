"""The rows of this family's table, with the targets (bars): for each attack, figures during and before the attack."""

from collections.abc import Iterator

from benchmark.abuse.attack import Attack
from benchmark.abuse.attacks import ATTACKS
from benchmark.abuse.options import Options
from benchmark.measures import Bar, Measure

STALL_MS = Bar(100, absolute=True)
GROWTH_MIB = Bar(256, absolute=True)
# Memory counts as released when at most this much of the growth is left. Allocators keep some pages.
LEFT_MIB_MAX = 64.0
LEFT_MIB = Bar(LEFT_MIB_MAX, absolute=True)
P99 = Bar(5)
NO_FAILURES = Bar(0, absolute=True)


def measures(given: Options) -> list[Measure]:
    return [measure for attack in ATTACKS for measure in measures_of(attack, given)]


def measures_of(attack: Attack, given: Options) -> Iterator[Measure]:
    title = attack.titled(given.size_of(attack))
    yield Measure(f"{title}: longest stall", "ms", attack.name, "stall_ms", STALL_MS, is_compared=False)
    yield Measure("- memory growth", "MiB", attack.name, "growth_mib", GROWTH_MIB)
    after = f"- left of it after at most {given.times.after_seconds:g} s"
    yield Measure(after, "MiB", attack.name, "left_mib", LEFT_MIB)
    yield Measure("- Produce and Fetch, p99", "ms", attack.name, "kafka_p99_ms", P99)
    yield Measure("- HTTP publish, p99", "ms", attack.name, "http_p99_ms", P99)
    if attack.is_guarded:
        yield Measure("- new login by SCRAM, p99", "ms", attack.name, "scram_p99_ms", P99)
        yield Measure("- new login by PLAIN, p99", "ms", attack.name, "plain_p99_ms", P99)
        yield Measure("- first login of a user by PLAIN, p99", "ms", attack.name, "first_p99_ms", P99)
    if attack.large_bytes:
        yield Measure(f"- Produce of {attack.large_bytes // 1024} KiB, p99", "ms", attack.name, "large_p99_ms", P99)
    yield Measure("- failed requests of the good client", "", attack.name, "failed", NO_FAILURES)
    yield Measure("- strikes", "", attack.name, "strikes")
    yield Measure("- longest strike", "s", attack.name, "longest_seconds")
    yield Measure("- of them refused", "", attack.name, "refused")
