"""A pytest plugin that leaves tests out and names them: a program is missing, or the test needs a higher effort.

`@pytest.mark.needs_<program>` names the program, `@pytest.mark.full("reason")` a test of the efforts full and soak.
Under pytest-xdist only worker processes collect tests, so each sends its list to the process that writes the summary.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import pytest

from tests.support.effort import SOAK_FACTOR, VARIABLE, Effort, chosen_effort
from tests.support.small_disk import can_mount_small_disk

JAVA_VERSION_MIN = 17
NODE_VERSION_MIN = 20
# The first that fetches the version which a module asks for.
GO_MINOR_VERSION_MIN = 21

# Names of tests by the reason why they are left out.
LeftOut = dict[str, list[str]]
LEFT_OUT = pytest.StashKey[LeftOut]()
_OUTPUT = "left_out"


@cache
def has_version(program: str, argument: str, pattern: str, minimum: int) -> bool:
    """Whether the program is installed and the number that `pattern` finds in its output is at least `minimum`."""
    if shutil.which(program) is None:
        return False
    answer = subprocess.run([program, argument], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(pattern, answer.stdout + answer.stderr)
    return version is not None and int(version[1]) >= minimum


def has_java() -> bool:
    return has_version("java", "-version", r'version "(\d+)', JAVA_VERSION_MIN)


NEEDS: dict[str, tuple[str, Callable[[], bool]]] = {
    "needs_chromium": ("Chromium", lambda: shutil.which("chromium") is not None),
    "needs_fish": ("fish", lambda: shutil.which("fish") is not None),
    "needs_go": ("Go 1.21", lambda: has_version("go", "version", r"go1\.(\d+)", GO_MINOR_VERSION_MIN)),
    "needs_java": ("Java 17", has_java),
    "needs_jq": ("jq", lambda: shutil.which("jq") is not None),
    "needs_kcat": ("kcat", lambda: shutil.which("kcat") is not None),
    "needs_mvn": ("Maven", lambda: shutil.which("mvn") is not None),
    "needs_nginx": ("nginx", lambda: shutil.which("nginx") is not None),
    "needs_prometheus": ("Prometheus", lambda: None not in (shutil.which("prometheus"), shutil.which("promtool"))),
    "needs_node": ("Node 20", lambda: has_version("node", "--version", r"v(\d+)", NODE_VERSION_MIN)),
    "needs_systemd": ("systemd-analyze", lambda: shutil.which("systemd-analyze") is not None),
    "needs_tmpfs": ("the right to mount a file system", can_mount_small_disk),
    "needs_spark": ("PySpark and Java 17", lambda: importlib.util.find_spec("pyspark") is not None and has_java()),
    "needs_zsh": ("zsh", lambda: shutil.which("zsh") is not None),
}


def leave_out(config: pytest.Config, items: list[pytest.Item], reasons: Mapping[pytest.Item, str]) -> None:
    """Remove the items that have a reason, and remember them for the summary."""
    if not reasons:
        return
    left_out = config.stash.setdefault(LEFT_OUT, {})
    for item, reason in reasons.items():
        left_out.setdefault(reason, []).append(item.nodeid)
    config.hook.pytest_deselected(items=list(reasons))
    items[:] = [item for item in items if item not in reasons]


def _reason(marks: Iterable[pytest.Mark]) -> str | None:
    for mark in marks:
        if mark.name == "full" and chosen_effort() is Effort.QUICK:
            (why,) = mark.args
            return f"{VARIABLE} is {Effort.QUICK} ({why})"
        if mark.name in NEEDS and not NEEDS[mark.name][1]():
            return f"{NEEDS[mark.name][0]} is missing"
    return None


def pytest_configure() -> None:
    try:
        chosen_effort()
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if chosen_effort() is Effort.SOAK:
        _allow_more_time(config, items)
    found = {item: _reason(item.iter_markers()) for item in items}
    leave_out(config, items, {item: reason for item, reason in found.items() if reason is not None})


def _allow_more_time(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Raise the time limits of pytest-timeout as far as the repetitions rise."""
    default = float(config.getini("timeout"))
    for item in items:
        mark = item.get_closest_marker("timeout")
        seconds = float(mark.args[0]) if mark is not None else default
        item.add_marker(pytest.mark.timeout(seconds * SOAK_FACTOR), append=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = session.config.stash.get(LEFT_OUT, {})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over the list of a worker that ended. All have the same one; a worker that crashed has none."""
    node.config.stash.setdefault(LEFT_OUT, {}).update(getattr(node, "workeroutput", {}).get(_OUTPUT, {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for reason, tests in sorted(config.stash.get(LEFT_OUT, {}).items()):
        terminalreporter.section(f"not run: {reason}")
        for test in sorted(tests):
            terminalreporter.write_line(test)
