"""The rows of this family's table, with the targets (bars)."""

from collections.abc import Iterator

from benchmark.access.options import FEW_ACLS, KEY_PUBLISH, KEYS, MANY_ACLS
from benchmark.access.servers import OPEN
from benchmark.measures import Bar, Measure

PRODUCE, REQUESTS = "produce-acls", "small-requests-acls"
MANY = "-many"  # The end of the name of a work on the server with many ACLs.
ONE_KEY, ROOMS = "one-key", "rooms"  # Names in samples: kwire with one key, and publishing to rooms.
PRODUCE_TLS, CONSUME_TLS = "produce-tls", "consume-tls"

# What logins and ACLs may cost: 5 % of produce, 10 % of small requests.
PRODUCE_RATE, PRODUCE_CPU = Bar(0.95, at_least=True), Bar(1.05)
REQUEST_RATE, REQUEST_CPU = Bar(0.9, at_least=True), Bar(1.1)


def measures() -> list[Measure]:
    return [*_acl_measures(), *_tls_measures(), *_key_measures()]


def _acl_measures() -> Iterator[Measure]:
    for end, count in (("", FEW_ACLS), (MANY, MANY_ACLS)):
        guarded = f"SCRAM and {count:,} ACLs beside PLAINTEXT"
        work = PRODUCE + end
        yield Measure(
            f"produce 1 KiB, {guarded}", "MB/s", work, "mb_per_s", PRODUCE_RATE, beside_work=PRODUCE, beside=OPEN
        )
        yield Measure("- server CPU", "s/GB", work, "cpu_s_per_gb", PRODUCE_CPU, beside_work=PRODUCE, beside=OPEN)
        work = REQUESTS + end
        yield Measure(
            f"small requests, {guarded}",
            "requests/s",
            work,
            "requests_per_s",
            REQUEST_RATE,
            beside_work=REQUESTS,
            beside=OPEN,
        )
        yield Measure("- p99", "us", work, "p99_us", beside_work=REQUESTS, beside=OPEN)
        yield Measure(
            "- server CPU", "us/request", work, "cpu_us_per_request", REQUEST_CPU, beside_work=REQUESTS, beside=OPEN
        )


def _tls_measures() -> Iterator[Measure]:
    yield Measure("produce 1 KiB over TLS beside Kafka's TLS", "MB/s", PRODUCE_TLS, "mb_per_s")
    yield Measure("- latency p99", "ms", PRODUCE_TLS, "p99_ms")
    yield Measure("- server CPU", "s/GB", PRODUCE_TLS, "cpu_s_per_gb")
    yield Measure(
        "- server CPU beside PLAINTEXT", "s/GB", PRODUCE_TLS, "cpu_s_per_gb", beside_work=PRODUCE, beside=OPEN
    )
    yield Measure("- longest event-loop stall", "ms", PRODUCE_TLS, "stall_ms_max", is_compared=False)
    yield Measure("consume over TLS beside Kafka's TLS", "MB/s", CONSUME_TLS, "mb_per_s")
    yield Measure("- without the group's join", "MB/s", CONSUME_TLS, "fetch_mb_per_s")
    yield Measure("- server CPU", "s/GB", CONSUME_TLS, "cpu_s_per_gb")


def _key_measures() -> Iterator[Measure]:
    yield Measure("start-up with many API keys beside one key", "ms", KEYS, "ready_ms", beside=ONE_KEY)
    yield Measure("- memory when ready", "MB", KEYS, "memory_mb", beside=ONE_KEY)
    yield Measure("- memory of a key", "bytes", KEYS, "key_bytes", is_compared=False)
    yield Measure("- a login", "us", KEYS, "login_us", is_compared=False)
    yield Measure("publish with a key, /db beside /rooms", "events/s", KEY_PUBLISH, "events_per_s", beside=ROOMS)
    yield Measure("- server CPU", "us/event", KEY_PUBLISH, "cpu_us_per_request", beside=ROOMS)
