"""Measures rebalances of three members and six partitions: the time until all members have their final assignment.

It is a separate program (`python -m benchmark.groups.rebalance_program --help`), so that no other code of the benchmark
runs in its process. Members send a heartbeat every 10 ms. So the figures include up to 10 ms until a member notices the
rebalance.
"""

import argparse
import gc
import json
import sys
from array import array
from dataclasses import asdict, dataclass

from benchmark.groups.crowd import Crowd
from benchmark.groups.options import PROTOCOLS
from benchmark.histogram import Latencies

REBALANCES_MAX = 10_000
SETTLE_SECONDS = 30
MEMBERS = 3


@dataclass(frozen=True)
class Rebalances:
    """The durations of three kinds of rebalances, each as an encoded histogram."""

    form: str  # Three members of a new group join at the same time.
    join: str  # A third member joins two.
    leave: str  # One of three leaves.


def rebalance(
    address: tuple[str, int], protocol: str, topic: str, partition_count: int, prefix: str, rebalances: int
) -> Rebalances:
    times_ns: dict[str, array[int]] = {name: array("q") for name in ("form", "join", "leave")}
    gc.disable()
    with Crowd(address) as crowd:
        for number in range(rebalances):
            _form(crowd, protocol, topic, partition_count, f"{prefix}-form-{number:04d}", times_ns)
            _join_and_leave(crowd, protocol, topic, partition_count, f"{prefix}-join-{number:04d}", times_ns)
    return Rebalances(**{name: Latencies.of(times).encode() for name, times in times_ns.items()})


def _form(
    crowd: Crowd, protocol: str, topic: str, partition_count: int, group: str, times_ns: "dict[str, array[int]]"
) -> None:
    members = [crowd.admit(protocol, group, number, topic, partition_count) for number in range(MEMBERS)]
    crowd.start(members)
    times_ns["form"].append(_nanoseconds(crowd.settle([members], SETTLE_SECONDS)))
    for member in members:
        member.leave()
    crowd.play(lambda: not any(member.is_waiting for member in members), SETTLE_SECONDS)
    crowd.dismiss(members)


def _join_and_leave(
    crowd: Crowd, protocol: str, topic: str, partition_count: int, group: str, times_ns: "dict[str, array[int]]"
) -> None:
    members = [crowd.admit(protocol, group, number, topic, partition_count) for number in range(MEMBERS)]
    *first, last = members
    crowd.start(first)
    crowd.settle([first], SETTLE_SECONDS)
    crowd.start([last])
    times_ns["join"].append(_nanoseconds(crowd.settle([members], SETTLE_SECONDS)))
    last.leave()
    times_ns["leave"].append(_nanoseconds(crowd.settle([first], SETTLE_SECONDS)))
    for member in first:
        member.leave()
    crowd.play(lambda: not any(member.is_waiting for member in members), SETTLE_SECONDS)
    crowd.dismiss(members)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmark.groups.rebalance_program", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--protocol", choices=PROTOCOLS, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--prefix", required=True, help="prefix of the group names")
    parser.add_argument("--rebalances", type=int, default=50)
    given = parser.parse_args()
    if not 0 < given.rebalances <= REBALANCES_MAX:
        parser.error(f"at most {REBALANCES_MAX} rebalances")
    address = (given.host, given.port)
    found = rebalance(address, given.protocol, given.topic, given.partitions, given.prefix, given.rebalances)
    json.dump(asdict(found), sys.stdout)


if __name__ == "__main__":
    main()
