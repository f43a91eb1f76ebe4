"""Runs one attack, and measures the good client before and during it, the longest stall, and memory."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmark.abuse import attacker, good_client
from benchmark.abuse.attack import Attack
from benchmark.abuse.bounds import ANSWER_SECONDS_MAX
from benchmark.abuse.measures import LEFT_MIB_MAX
from benchmark.abuse.memory import MEBIBYTE, MemoryWatch
from benchmark.abuse.stage import BEFORE, Stage, server_for, tls_port
from benchmark.access.acls import acls_for, add_acls
from benchmark.access.client_config import sasl_config, write_config
from benchmark.access.first_users import add_first_users
from benchmark.access.options import FEW_ACLS
from benchmark.access.servers import ADMIN, CLIENT
from benchmark.admin import Admin
from benchmark.histogram import Latencies
from benchmark.processes import Child, own_program
from benchmark.samples import Sample
from benchmark.servers import KWIRE, RunningServer
from benchmark.stalls import LoopHealth, loop_health

GRACE_SECONDS = 60.0
PREPARE_SECONDS_MAX = 300.0
READY_SECONDS_MAX = 60.0
HEALTH_SECONDS_MAX = 120.0
LARGE_MESSAGE_BYTES_MAX = 16 * MEBIBYTE


def run(attack: Attack, stage: Stage, round_number: int, _names: Sequence[str]) -> Iterator[Sample]:
    times = stage.options.times
    size = stage.options.size_of(attack)
    with server_for(stage, attack) as server:
        _prepare(attack, server, size)
        with _client(attack, server, seconds=times.before_seconds) as quiet:
            before = _rounds(quiet.finish(times.before_seconds + GRACE_SECONDS))
        health = loop_health(server)
        with (
            MemoryWatch(server) as memory,
            _client(attack, server, stop_with_stdin=True, first_user=good_client.FIRST_USERS) as client,
        ):
            yield Sample(BEFORE, round_number, attack.name, _figures(before))
            client.await_line(READY_SECONDS_MAX)
            with _attacker(attack, server, size, seconds=times.attack_seconds) as attacking:
                attacking.await_line(times.attack_seconds + ANSWER_SECONDS_MAX + GRACE_SECONDS)
                during = _rounds(client.finish(ANSWER_SECONDS_MAX + GRACE_SECONDS))
                figures = _figures(during)
                figures["stall_ms"] = _stall_ms(health, await_health(server), during)
                figures["back_s"] = memory.await_back(LEFT_MIB_MAX, times.after_seconds)
                figures["growth_mib"], figures["left_mib"] = memory.growth_mib, memory.left_mib
                outcome = attacker.Outcome(**json.loads(attacking.finish(ANSWER_SECONDS_MAX + GRACE_SECONDS)))
        server.check_alive()
        figures |= asdict(outcome)
        yield Sample(KWIRE, round_number, attack.name, figures, _histograms(during))


def _prepare(attack: Attack, server: RunningServer, size: int) -> None:
    if attack.is_guarded:
        add_acls(server.address, ADMIN, acls_for(CLIENT, good_client.NAME_PREFIX, FEW_ACLS))
        add_first_users(server.address, ADMIN, 2 * good_client.FIRST_USERS)
    with Admin(server.address, ADMIN if attack.is_guarded else None) as admin:
        admin.make_topic(good_client.TOPIC, 1, {})
        admin.make_topic(good_client.LARGE_TOPIC, 1, {"max.message.bytes": LARGE_MESSAGE_BYTES_MAX})
    if attack.prepare is not None:
        with _attacker(attack, server, size, prepare=True) as preparing:
            preparing.finish(PREPARE_SECONDS_MAX)
        # A restart, so that stalls and memory of the preparation are not counted for the attack.
        server.stop()
        server.start()


def _attacker(attack: Attack, server: RunningServer, size: int, **more: object) -> Child:
    port = server.address[1]
    return own_program(
        "abuse.attacker",
        attack=attack.name,
        kafka_port=port,
        http_port=server.http_port,
        tls_port=tls_port(server),
        size=size,
        **more,
    )


def _client(attack: Attack, server: RunningServer, **more: object) -> Child:
    port = server.address[1]
    if attack.is_guarded:
        more |= {"command_config": _config(server)}
    return own_program(
        "abuse.good_client", kafka_port=port, http_port=server.http_port, large_bytes=attack.large_bytes, **more
    )


def _config(server: RunningServer) -> Path:
    return write_config(server.directory / "client.properties", sasl_config(CLIENT))


def _rounds(output: str) -> good_client.Rounds:
    return good_client.Rounds(**json.loads(output.splitlines()[-1]))


def _histograms(rounds: good_client.Rounds) -> dict[str, str]:
    return {name: text for name in good_client.PARTS if (text := getattr(rounds, name))}


def _figures(rounds: good_client.Rounds) -> dict[str, float]:
    figures: dict[str, float] = {"rounds": rounds.rounds, "failed": rounds.failed}
    for name, encoded in _histograms(rounds).items():
        latencies = Latencies.decode(encoded).figures()
        figures |= {f"{name}_{which}_ms": latencies[f"{which}_us"] / 1000 for which in ("p50", "p99", "max")}
    return figures


def await_health(server: RunningServer) -> LoopHealth:
    """Return the event-loop figures as soon as the server answers."""
    deadline = time.monotonic() + HEALTH_SECONDS_MAX
    while (health := loop_health(server)).longest_seconds is None and time.monotonic() < deadline:
        server.check_alive()
    return health


def _stall_ms(before: LoopHealth, after: LoopHealth, during: good_client.Rounds) -> float:
    """Return the longest stall during the attack.

    The server reports the longest stall since its start. If this stall was before the attack, the longest wait of the
    good client is an upper bound for the stalls during the attack.
    """
    waited = max(Latencies.decode(text).figures()["max_us"] / 1000 for text in _histograms(during).values())
    if after.longest_seconds is None:
        return waited
    longest = after.longest_seconds * 1000
    if before.longest_seconds is not None and after.longest_seconds <= before.longest_seconds:
        return min(longest, waited)
    return longest
