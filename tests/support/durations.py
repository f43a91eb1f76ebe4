"""A pytest plugin that prints the slowest tests at the end of every run, and keeps all durations on request.

The duration of a test is that of its set-up, call and tear-down together. The first test that uses a shared fixture is
charged with its set-up.
"""

from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.effort import chosen_effort

SHOWN_MAX = 50
REPORT = Path("build/test-durations.tsv")

_DURATIONS = pytest.StashKey["Durations"]()


class Durations:
    """Seconds by test, collected from the reports of a run."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def slowest_first(self) -> list[tuple[float, str]]:
        return sorted(((seconds, test) for test, seconds in self._seconds.items()), reverse=True)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--durations-report",
        action="store_true",
        help=f"write the duration of every test to {REPORT}",
    )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[_DURATIONS] = Durations()
        config.pluginmanager.register(config.stash[_DURATIONS])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    durations = config.stash.get(_DURATIONS, None)
    slowest = durations.slowest_first() if durations is not None else []
    if not slowest:
        return
    terminalreporter.section(f"slowest {SHOWN_MAX} tests")
    for seconds, test in slowest[:SHOWN_MAX]:
        terminalreporter.write_line(f"{seconds:8.2f}s {test}")
    total = sum(seconds for seconds, _ in slowest)
    terminalreporter.write_line(f"{total:8.2f}s all {len(slowest)} tests together, effort {chosen_effort()}")
    if config.getoption("--durations-report"):
        report = config.rootpath / REPORT
        report.parent.mkdir(parents=True, exist_ok=True)
        report.write_text("".join(f"{seconds:.3f}\t{test}\n" for seconds, test in slowest))
        terminalreporter.write_line(f"all durations are in {report}")
