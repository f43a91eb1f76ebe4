"""The attacker, a separate program: `python -m benchmark.abuse.attacker --help`.

It prints a line when the time of the attack is over, keeps its connections open until its standard input is closed, and
then prints its outcome.
"""

import argparse
import json
import os
import resource
import select
import sys
import time
from dataclasses import asdict, dataclass

from benchmark.abuse.attack import Attack, Target
from benchmark.abuse.attacks import BY_NAME
from benchmark.wire import WireError

PAUSE_SECONDS = 1.0
# A real attacker has its own machine. Here it has a low priority, so that it does not take CPU time from the others.
NICENESS = 10
# The maximum time for which connections are kept open, if the standard input is not closed.
HOLD_SECONDS_MAX = 600.0


@dataclass
class Outcome:
    strikes: int = 0
    refused: int = 0
    seconds: float = 0.0
    longest_seconds: float = 0.0


def attack_for(attack: Attack, target: Target, seconds: float) -> Outcome:
    outcome = Outcome()
    started = time.monotonic()
    while outcome.strikes == 0 or (not attack.is_held and time.monotonic() - started < seconds):
        struck = time.monotonic()
        target.strikes = outcome.strikes
        try:
            attack.strike(target)
        except (OSError, WireError):
            outcome.refused += 1  # The connection was closed or reset, or there was no answer in time.
        outcome.strikes += 1
        outcome.longest_seconds = max(outcome.longest_seconds, time.monotonic() - struck)
        time.sleep(max(0.0, PAUSE_SECONDS - (time.monotonic() - struck)))
    while time.monotonic() - started < seconds:
        keep(attack, target)
        time.sleep(PAUSE_SECONDS)
    outcome.seconds = time.monotonic() - started
    return outcome


def keep(attack: Attack, target: Target) -> None:
    if attack.keep is not None:
        attack.keep(target)


def hold_until_closed(attack: Attack, target: Target) -> None:
    deadline = time.monotonic() + HOLD_SECONDS_MAX
    while time.monotonic() < deadline:
        closed, _, _ = select.select([sys.stdin], [], [], PAUSE_SECONDS)
        if closed:
            return
        keep(attack, target)


def raise_limit() -> None:
    """Allow this process as many descriptors as possible, because some attacks hold thousands of connections."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmark.abuse.attacker", description=__doc__.splitlines()[0])
    parser.add_argument("--attack", choices=sorted(BY_NAME), required=True)
    parser.add_argument("--kafka-port", type=int, required=True)
    parser.add_argument("--http-port", type=int, required=True)
    parser.add_argument("--tls-port", type=int, default=0, help="the listener with TLS, if there is one")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--prepare", action="store_true", help="only prepare the server")
    given = parser.parse_args()
    attack = BY_NAME[given.attack]
    target = Target(given.kafka_port, given.http_port, given.tls_port, given.size)
    if given.prepare:
        if attack.prepare is not None:
            attack.prepare(target)
        return
    os.nice(NICENESS)
    raise_limit()
    outcome = attack_for(attack, target, given.seconds)
    print("attacked", flush=True)
    hold_until_closed(attack, target)
    json.dump(asdict(outcome), sys.stdout)


if __name__ == "__main__":
    main()
