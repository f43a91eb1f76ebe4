"""The division of file descriptors between connections and the log."""

import logging
import os
import resource
import subprocess
import sys

import pytest

from kwire import descriptors
from kwire.descriptors import DESCRIPTORS_PER_LOG, DESCRIPTORS_PER_NODE, HTTP, KAFKA, Descriptors, current_limit

WAIT_SECONDS = 20.0


@pytest.mark.parametrize(
    ("limit", "open_logs_wanted", "reserved_count", "open_logs_max"),
    [
        (200, 2000, 100, 17),
        (1024, 2000, 512, 120),
        (20_000, 2000, 8032, 2000),
        (1_000_000, 100_000, 400_032, 100_000),
        (64, 2000, 32, 1),
    ],
)
def test_connections_get_at_least_half(
    limit: int, open_logs_wanted: int, reserved_count: int, open_logs_max: int
) -> None:
    found = Descriptors(limit, open_logs_wanted)
    assert (found.reserved_count, found.open_logs_max) == (reserved_count, open_logs_max)
    assert limit - found.reserved_count >= limit // 2


def test_a_connection_among_the_last_descriptors_is_refused_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(descriptors, "monotonic", lambda: now)
    found = Descriptors(1024, open_logs_max=10)
    first_reserved = 1024 - DESCRIPTORS_PER_NODE - 10 * DESCRIPTORS_PER_LOG
    with caplog.at_level(logging.WARNING, "kwire.server"):
        assert found.admit(KAFKA, first_reserved - 1)
        assert not caplog.messages
        for fd in (first_reserved, first_reserved + 1, 1023):
            assert not found.admit(HTTP, fd)
        assert len(caplog.messages) == 1
        now += descriptors.WARNING_SECONDS
        assert not found.admit(KAFKA, 1000)
    assert found.refused == {"kafka": 1, "http": 3, "webhooks": 0}
    assert "refused connections: 3, the last one of kind kafka" in caplog.messages[1]


@pytest.mark.parametrize(("next_fd", "is_short"), [(500, False), (767, False), (768, True), (1024, True)])
def test_the_log_is_short_when_half_of_its_own_are_in_use(
    monkeypatch: pytest.MonkeyPatch, next_fd: int, is_short: bool
) -> None:
    monkeypatch.setattr(descriptors, "_lowest_free", lambda limit: next_fd)
    assert Descriptors(1024, open_logs_max=1000).is_log_short is is_short


def test_the_next_descriptor_has_the_lowest_free_number() -> None:
    fd = os.open(os.devnull, os.O_RDONLY)
    os.close(fd)
    assert descriptors._lowest_free(limit=10**6) == fd


def test_the_limit_is_raised_to_what_the_process_may_have() -> None:
    program = "from kwire.descriptors import current_limit, raise_limit; print(current_limit(), raise_limit())"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4000 if hard == resource.RLIM_INFINITY else min(hard, 4000)
    command = ["prlimit", f"--nofile=100:{wanted}", sys.executable, "-c", program]
    found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=WAIT_SECONDS)
    assert found.stdout.split() == ["100", str(wanted)]
    assert current_limit() > 0
