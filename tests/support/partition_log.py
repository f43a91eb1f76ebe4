"""The log behind a partition, which is private to the server: for tests that look at files or cause damage."""

import pytest

from kwire.broker.partition import Partition
from kwire.config.resources.topic import TopicSettings
from storage.errors import DiskFailure
from storage.log.log import Log


def log_of(partition: Partition) -> Log:
    """The log of a partition, opened if it is not open."""
    partition.open()
    log = partition._log
    assert log is not None
    return log


def lose_log(partition: Partition, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close the log of a partition without a trace; opening it again fails."""

    def refuse(settings: TopicSettings) -> Log:
        raise DiskFailure("gone")

    monkeypatch.setattr(partition, "_open_log", refuse)
    monkeypatch.setattr(partition, "_log", None)
