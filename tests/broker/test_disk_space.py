"""What is logged about disks that are nearly full."""

import logging

import pytest

from kwire.broker.maintenance.disk_space import FREE_BYTES_MIN, REPEAT_SECONDS, NearlyFullDisks

GIB = 1024**3


@pytest.fixture
def disks(caplog: pytest.LogCaptureFixture) -> NearlyFullDisks:
    caplog.set_level(logging.INFO, "kwire.broker")
    return NearlyFullDisks()


def test_a_disk_with_space_is_not_mentioned(disks: NearlyFullDisks, caplog: pytest.LogCaptureFixture) -> None:
    disks.check("/data", 100 * GIB, 6 * GIB, 0.0)
    # Five percent of a large disk are plenty.
    disks.check("/large", 10_000 * GIB, FREE_BYTES_MIN, 0.0)
    assert not caplog.records


def test_a_nearly_full_disk_is_reported_once_an_hour(disks: NearlyFullDisks, caplog: pytest.LogCaptureFixture) -> None:
    for now in (0.0, 30.0, REPEAT_SECONDS - 1, REPEAT_SECONDS, REPEAT_SECONDS + 30):
        disks.check("/data", 100 * GIB, 4 * GIB, now)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert caplog.messages[0].startswith("the disk of /data is nearly full: 4.0 GiB of 100.0 GiB are free")


def test_it_has_space_again_only_clearly_above_the_limit(
    disks: NearlyFullDisks, caplog: pytest.LogCaptureFixture
) -> None:
    for free_gib in (4, 5.1, 4.9, 6, 6.3, 4):
        disks.check("/data", 100 * GIB, int(free_gib * GIB), 0.0)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING"]
    assert caplog.messages[1] == "the disk of /data has space again: 6.3 GiB are free"


def test_each_directory_is_reported(disks: NearlyFullDisks, caplog: pytest.LogCaptureFixture) -> None:
    disks.check("/one", 100 * GIB, 512 * 1024**2, 0.0)
    disks.check("/other", 100 * GIB, GIB, 0.0)
    assert ["512 MiB" in caplog.messages[0], "/other" in caplog.messages[1]] == [True, True]
