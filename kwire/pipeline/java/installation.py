"""Checks that a suitable Java is installed, before Spark is started. Spark's own errors do not name the remedy."""

import os
import re
import shutil
import subprocess
from pathlib import Path

JAVA_VERSION_MIN = 17
REMEDY = "apt-get install openjdk-17-jre-headless"
# `java -version` usually takes a tenth of a second.
VERSION_S_MAX = 20.0

_RELEASE = re.compile(r'^JAVA_VERSION="(?P<version>[^"]+)"', re.MULTILINE)
_PRINTED = re.compile(r'version "(?P<version>[^"]+)"')


class JavaMissing(ValueError):
    """There is no Java, or one that Spark cannot use."""


def check_java() -> None:
    """Raise JavaMissing unless the Java that Spark would start has at least JAVA_VERSION_MIN."""
    program = java_program()
    version = java_version(program)
    if version is None:
        raise JavaMissing(f"Java {JAVA_VERSION_MIN} not found: {program} does not run: {REMEDY}")
    if version < JAVA_VERSION_MIN:
        hint = ", then unset JAVA_HOME" if "JAVA_HOME" in os.environ else ""
        raise JavaMissing(f"Java {JAVA_VERSION_MIN} not found: {program} is Java {version}: {REMEDY}{hint}")


def java_program() -> Path:
    """Return the program that Spark starts: that of JAVA_HOME, or the first in PATH. Raises JavaMissing."""
    home = os.environ.get("JAVA_HOME")
    if home:
        program = Path(home) / "bin" / "java"
        if not os.access(program, os.X_OK):
            raise JavaMissing(
                f"Java {JAVA_VERSION_MIN} not found: JAVA_HOME is {home}, which has no bin/java: correct it, or "
                f"unset it and run {REMEDY}"
            )
        return program
    found = shutil.which("java")
    if found is None:
        raise JavaMissing(f"Java {JAVA_VERSION_MIN} not found: {REMEDY}")
    return Path(found)


def java_version(program: Path) -> int | None:
    """Return the main version of a Java: 8, 11, 17, …; None if it cannot be determined.

    The file `release` of the installation has it. Without this file the program is asked.
    """
    try:
        found = _RELEASE.search((program.resolve().parent.parent / "release").read_text(errors="replace"))
    except OSError:
        found = None
    if found is None:
        found = _PRINTED.search(_printed_version(program))
    return None if found is None else _main_version(found["version"])


def _printed_version(program: Path) -> str:
    try:
        ended = subprocess.run(
            [program, "-version"], capture_output=True, text=True, errors="replace", timeout=VERSION_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stderr + ended.stdout


def _main_version(version: str) -> int | None:
    """Return 17 for "17.0.9", and 8 for "1.8.0_392"."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return None
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]
