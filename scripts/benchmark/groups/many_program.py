"""Simulates many stable groups with many members. Each member sends heartbeats on its own connection.

It is a separate program (`python -m benchmark.groups.many_program --help`). First all members join their groups. Then
only heartbeats are sent, and the program reads the server's CPU time from /proc before and after this.
"""

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from benchmark import procfs
from benchmark.groups.crowd import Crowd
from benchmark.groups.members import Member
from benchmark.groups.options import GROUPS_MAX, MEMBERS_MAX, PROTOCOLS, SECONDS_MAX
from benchmark.histogram import Latencies
from benchmark.stalls import loop_health_at

# The number of groups whose members join at the same time.
PORTION = 20
# The heartbeat interval of members that join. With a shorter interval, two hundred members would saturate the server.
GATHERING_PACE_SECONDS = 0.1
SETTLE_SECONDS = 120
OTHER_FILES = 50
REST_SECONDS = 2.0


@dataclass(frozen=True)
class Beats:
    heartbeats: int
    seconds: float
    server_cpu_seconds: float
    own_cpu_seconds: float
    gathering_seconds: float
    # The number of joins during the measurement. It should be 0, because the groups do not change.
    rejoins: int
    # Stalls of the server's event loop during the measurement, or None if the server does not report them.
    stalls: float | None
    latencies: str


def beat(
    address: tuple[str, int],
    server_pid: int,
    metrics_url: str,
    protocol: str,
    topic: str,
    prefix: str,
    groups: int,
    members: int,
    interval_seconds: float,
    seconds: float,
) -> Beats:
    with Crowd(address) as crowd:
        began = time.perf_counter()
        everybody = _gather(crowd, protocol, topic, prefix, groups, members, interval_seconds)
        gathering_seconds = time.perf_counter() - began
        _spread(crowd, everybody, interval_seconds)
        _play_for(crowd, REST_SECONDS)
        joins = sum(member.join_count for member in everybody)
        del crowd.samples_ns[:]
        gc.collect()
        gc.disable()
        health = loop_health_at(metrics_url)
        server_cpu, own_cpu, started = procfs.cpu_seconds(server_pid), time.process_time(), time.perf_counter()
        _play_for(crowd, seconds)
        elapsed, own_cpu = time.perf_counter() - started, time.process_time() - own_cpu
        server_cpu = procfs.cpu_seconds(server_pid) - server_cpu
        return Beats(
            heartbeats=len(crowd.samples_ns),
            seconds=elapsed,
            server_cpu_seconds=server_cpu,
            own_cpu_seconds=own_cpu,
            gathering_seconds=gathering_seconds,
            rejoins=sum(member.join_count for member in everybody) - joins,
            stalls=loop_health_at(metrics_url).figures_since(health).get("stalls"),
            latencies=Latencies.of(crowd.samples_ns).encode(),
        )


def _gather(
    crowd: Crowd, protocol: str, topic: str, prefix: str, groups: int, members: int, interval_seconds: float
) -> list[Member]:
    everybody: list[Member] = []
    for first in range(0, groups, PORTION):
        portion = [
            [crowd.admit(protocol, f"{prefix}-{number:05d}", place, topic, members) for place in range(members)]
            for number in range(first, min(first + PORTION, groups))
        ]
        for group in portion:
            crowd.start(group, GATHERING_PACE_SECONDS)
        crowd.settle(portion, SETTLE_SECONDS)
        gathered = [member for group in portion for member in group]
        _spread(crowd, gathered, interval_seconds)
        everybody += gathered
    return everybody


def _spread(crowd: Crowd, members: Sequence[Member], interval_seconds: float) -> None:
    """Distribute the heartbeats of the members evenly over the interval."""
    now = time.perf_counter()
    for place, member in enumerate(members):
        crowd.set_pace(member, interval_seconds, now + interval_seconds * place / len(members))


def _play_for(crowd: Crowd, seconds: float) -> None:
    end = time.perf_counter() + seconds
    crowd.play(lambda: time.perf_counter() >= end, seconds + SETTLE_SECONDS)


def allow_open_files(count: int) -> None:
    """Raise the limit of open files of this process to `count`. Exit if this exceeds the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and count > hard:
        sys.exit(f"{count} files have to be open at a time, {hard} are allowed (ulimit -Hn)")
    if soft != resource.RLIM_INFINITY and count > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.groups.many_program", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server-pid", type=int, required=True, help="process id of the server")
    parser.add_argument("--metrics-url", default="", help="metrics of the server, for stalls")
    parser.add_argument("--protocol", choices=PROTOCOLS, required=True)
    parser.add_argument("--topic", required=True, help="with as many partitions as a group has members")
    parser.add_argument("--prefix", required=True, help="prefix of the group names")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--members", type=int, default=10, help="in each group")
    parser.add_argument("--interval", type=float, default=3.0, help="seconds between two heartbeats of a member")
    parser.add_argument("--seconds", type=float, default=30.0)
    given = parser.parse_args()
    if not 0 < given.groups <= GROUPS_MAX or not 0 < given.members <= MEMBERS_MAX:
        parser.error(f"1 to {GROUPS_MAX} groups of 1 to {MEMBERS_MAX} members")
    if not 0 < given.interval <= SECONDS_MAX or not 0 < given.seconds <= SECONDS_MAX:
        parser.error(f"at most {SECONDS_MAX:.0f} seconds")
    allow_open_files(given.groups * given.members + OTHER_FILES)
    beats = beat(
        (given.host, given.port),
        given.server_pid,
        given.metrics_url,
        given.protocol,
        given.topic,
        given.prefix,
        given.groups,
        given.members,
        given.interval,
        given.seconds,
    )
    json.dump(asdict(beats), sys.stdout)


if __name__ == "__main__":
    main()
