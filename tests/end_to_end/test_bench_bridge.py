"""`scripts/bench bridge` works, and what it asserts holds: kills under load, and very many rooms."""

from pathlib import Path

import pytest

from tests.support.bench import BENCH_SECONDS_MAX, bench

pytestmark = [
    pytest.mark.full("starts a cluster of Apache Kafka of its own, and kills its nodes"),
    pytest.mark.needs_java,
    pytest.mark.xdist_group("apache-kafka"),
    pytest.mark.timeout(BENCH_SECONDS_MAX + 20),
]
# A killed broker is replaced sooner than by default, so that the test is shorter.
SESSION_TIMEOUT_MS = 3000
KINDS = ("leader", "other", "bridge")


def test_kills_under_load_lose_repeat_and_leave_out_nothing(tmp_path: Path) -> None:
    printed: list[str] = []
    options = ("--only", ",".join(KINDS), "--kills", "1", "--session-timeout-ms", str(SESSION_TIMEOUT_MS))
    found = bench("bridge", tmp_path, *options, servers=(), has_seconds=False, printed=printed)
    assert all(found[f"kill of the {kind}"]["outage_p50_ms"] > 0 for kind in KINDS)
    verdicts = [line for line in printed if line.startswith("kill of the ") and "times: " in line]
    assert len(verdicts) == len(KINDS)
    assert all(line.endswith(": holds") for line in verdicts), verdicts


def test_many_rooms_and_their_subscribers_are_served_over_few_connections(tmp_path: Path) -> None:
    options = ("--only", "rooms", "--rooms", "60", "--subscribers", "20", "--idle-seconds", "1")
    found = bench("bridge", tmp_path, *options, servers=(), has_seconds=False)
    assert found["rooms"]["rooms"] == 60
    subscribed = found["rooms, subscribed"]
    assert subscribed["p50_us"] > 0
    # Five for each broker, however many rooms and subscribers there are.
    assert 0 < subscribed["connections"] <= 15
