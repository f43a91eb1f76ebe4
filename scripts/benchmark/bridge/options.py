"""The command line of this family."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.options import GIGABYTE
from benchmark.servers import REPOSITORY

LEADER, OTHER, BRIDGE_PROCESS = "leader", "other", "bridge"
KINDS = (LEADER, OTHER, BRIDGE_PROCESS)
MANY_ROOMS = "rooms"
WORK_NAMES = (*KINDS, MANY_ROOMS)
KILLS, QUICK_KILLS, KILLS_MAX = 10, 2, 200
SESSION_TIMEOUT_MS_MAX = 60_000
# A broker has a file descriptor for each partition.
ROOMS, QUICK_ROOMS, ROOMS_MAX = 10_000, 200, 15_000
SUBSCRIBERS, QUICK_SUBSCRIBERS = 1_000, 50
IDLE_SECONDS, QUICK_IDLE_SECONDS, IDLE_SECONDS_MAX = 20.0, 2.0, 300.0


@dataclass(frozen=True, kw_only=True)
class Options:
    kinds: tuple[str, ...]
    kills: int
    has_many_rooms: bool
    rooms: int
    subscribers: int
    idle_seconds: float
    session_timeout_ms: int | None
    json_path: Path
    base_directory: Path | None
    keep: bool

    @property
    def disk_bytes(self) -> int:
        return 4 * GIGABYTE

    @property
    def cluster_settings(self) -> dict[str, str]:
        """Settings of the nodes beside Kafka's own."""
        if self.session_timeout_ms is None:
            return {}
        return {
            "broker.session.timeout.ms": str(self.session_timeout_ms),
            "broker.heartbeat.interval.ms": str(self.session_timeout_ms // 4),
        }


def parse(arguments: Sequence[str]) -> Options:
    parser = argparse.ArgumentParser(
        prog="scripts/bench bridge",
        description="Kill brokers and a bridge under load, and fill a bridge with rooms; see docs/benchmarks.md",
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_KILLS} kills of each kind, {QUICK_ROOMS} rooms")
    parser.add_argument("--only", metavar="WORK,…", help=f"some of: {', '.join(WORK_NAMES)}")
    parser.add_argument("--kills", type=int, metavar="N", help=f"of each kind ({KILLS})")
    parser.add_argument("--rooms", type=int, metavar="N", help=f"of the work {MANY_ROOMS} ({ROOMS:,})")
    parser.add_argument("--subscribers", type=int, metavar="N", help=f"each in a room of its own ({SUBSCRIBERS:,})")
    parser.add_argument("--idle-seconds", type=float, metavar="S", help=f"the time of idle CPU ({IDLE_SECONDS:g})")
    parser.add_argument(
        "--session-timeout-ms",
        type=int,
        metavar="MS",
        help="broker.session.timeout.ms of the cluster: after it, a killed broker is replaced (Kafka's default: 9000)",
    )
    results = REPOSITORY / "bench-results-bridge.json"
    parser.add_argument("--json", type=Path, default=results, metavar="FILE", help=f"raw samples ({results.name})")
    parser.add_argument("--dir", type=Path, metavar="DIR", help="where the data directories are made (TMPDIR)")
    parser.add_argument("--keep", action="store_true", help="do not delete the data directories and logs")
    given = parser.parse_args(arguments)
    chosen = tuple(given.only.split(",")) if given.only else WORK_NAMES
    if unknown := set(chosen) - set(WORK_NAMES):
        parser.error(f"--only knows {', '.join(WORK_NAMES)}; not {', '.join(sorted(unknown))}")

    def number(value: float | None, full: float, quick: float) -> float:
        return (quick if given.quick else full) if value is None else value

    kills = int(number(given.kills, KILLS, QUICK_KILLS))
    if not 0 < kills <= KILLS_MAX:
        parser.error(f"--kills: 1 to {KILLS_MAX}")
    rooms = int(number(given.rooms, ROOMS, QUICK_ROOMS))
    if not 0 < rooms <= ROOMS_MAX:
        parser.error(f"--rooms: 1 to {ROOMS_MAX}")
    subscribers = int(number(given.subscribers, min(rooms, SUBSCRIBERS), min(rooms, QUICK_SUBSCRIBERS)))
    if not 0 < subscribers <= rooms:
        parser.error(f"--subscribers: 1 to the number of rooms, {rooms}")
    idle_seconds = number(given.idle_seconds, IDLE_SECONDS, QUICK_IDLE_SECONDS)
    if not 0 < idle_seconds <= IDLE_SECONDS_MAX:
        parser.error(f"--idle-seconds: at most {IDLE_SECONDS_MAX:g}")
    timeout_ms = given.session_timeout_ms
    if timeout_ms is not None and not 1000 <= timeout_ms <= SESSION_TIMEOUT_MS_MAX:
        parser.error(f"--session-timeout-ms: 1000 to {SESSION_TIMEOUT_MS_MAX}")
    return Options(
        kinds=tuple(kind for kind in KINDS if kind in chosen),
        kills=kills,
        has_many_rooms=MANY_ROOMS in chosen,
        rooms=rooms,
        subscribers=subscribers,
        idle_seconds=idle_seconds,
        session_timeout_ms=timeout_ms,
        json_path=given.json,
        base_directory=given.dir,
        keep=given.keep,
    )
