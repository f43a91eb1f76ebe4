"""What every test shares: tests marked ``needs_<program>`` are left out, and named, where the program is missing.

Those marked ``long`` prove what shorter ones prove less often or in smaller pieces; KWIRE_TEST_LONG=1 asks for them.
"""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from functools import cache

import hypothesis
import pytest

from tests.support.small_disk import can_mount_small_disk

# A property is about what holds, not how fast: on a busy machine a time limit per example fails by chance.
hypothesis.settings.register_profile("kwire", deadline=None)
hypothesis.settings.load_profile("kwire")

JAVA_VERSION_MIN = 17
NODE_VERSION_MIN = 20
# The first that fetches the version which a module asks for.
GO_MINOR_VERSION_MIN = 21
_LEFT_OUT = pytest.StashKey[dict[str, list[str]]]()


@cache
def has_version(program: str, argument: str, pattern: str, minimum: int) -> bool:
    """Whether the program is there, and the number that `pattern` finds in what it says of itself is large enough."""
    if shutil.which(program) is None:
        return False
    answer = subprocess.run([program, argument], capture_output=True, text=True, timeout=60, check=False)
    version = re.search(pattern, answer.stdout + answer.stderr)
    return version is not None and int(version[1]) >= minimum


def has_java() -> bool:
    return has_version("java", "-version", r'version "(\d+)', JAVA_VERSION_MIN)


NEEDS: dict[str, tuple[str, Callable[[], bool]]] = {
    "long": ("KWIRE_TEST_LONG=1", lambda: os.environ.get("KWIRE_TEST_LONG") == "1"),
    "needs_chromium": ("Chromium", lambda: shutil.which("chromium") is not None),
    "needs_go": ("Go 1.21", lambda: has_version("go", "version", r"go1\.(\d+)", GO_MINOR_VERSION_MIN)),
    "needs_java": ("Java 17", has_java),
    "needs_kcat": ("kcat", lambda: shutil.which("kcat") is not None),
    "needs_mvn": ("Maven", lambda: shutil.which("mvn") is not None),
    "needs_node": ("Node 20", lambda: has_version("node", "--version", r"v(\d+)", NODE_VERSION_MIN)),
    "needs_tmpfs": ("the right to mount a file system", can_mount_small_disk),
    "needs_spark": ("PySpark and Java 17", lambda: importlib.util.find_spec("pyspark") is not None and has_java()),
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out: dict[str, list[str]] = {}
    kept, deselected = [], []
    for item in items:
        missing = [
            NEEDS[mark.name][0] for mark in item.iter_markers() if mark.name in NEEDS and not NEEDS[mark.name][1]()
        ]
        if missing:
            left_out.setdefault(missing[0], []).append(item.nodeid)
            deselected.append(item)
        else:
            kept.append(item)
    config.stash[_LEFT_OUT] = left_out
    if deselected:
        config.hook.pytest_deselected(items=deselected)
        items[:] = kept


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for program, tests in config.stash.get(_LEFT_OUT, {}).items():
        terminalreporter.section(f"not run: {program} is missing")
        for test in tests:
            terminalreporter.write_line(test)
