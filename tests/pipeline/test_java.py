"""Java before Spark is started: which one is found, what is said if none fits, and what its process prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kwire.pipeline.java.installation import JavaMissing, check_java, java_program, java_version
from kwire.pipeline.java.output import LINES_KEPT_MAX, LINES_SHOWN_MAX, JavaOutput

WAIT_S = 20.0
REMEDY = "apt-get install openjdk-17-jre-headless"


def java_at(home: Path, prints: str = "", release: str | None = None) -> Path:
    """A program `java` that prints its version as Java does, on standard error."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{prints}' >&2\n")
    program.chmod(0o755)
    if release is not None:
        (home / "release").write_text(f'IMPLEMENTOR="Debian"\nJAVA_VERSION="{release}"\n')
    return program


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/nowhere")


def test_a_missing_java_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(JavaMissing) as missing:
        check_java()
    assert str(missing.value) == f"Java 17 not found: {REMEDY}"


@pytest.mark.parametrize(
    ("release", "version"), [("17.0.21", 17), ("21", 21), ("1.8.0_392", 8), ("11.0.2", 11), ("25-ea", 25)]
)
def test_the_version_is_in_the_file_release(tmp_path: Path, release: str, version: int) -> None:
    java = java_at(tmp_path / "jvm", release=release)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(java)
    assert java_version(java_program()) == version


def test_without_that_file_java_is_asked(tmp_path: Path) -> None:
    assert java_version(java_at(tmp_path / "a", 'openjdk version "17.0.9" 2023-10-17')) == 17
    assert java_version(java_at(tmp_path / "b", 'java version "1.8.0_392"')) == 8
    assert java_version(java_at(tmp_path / "c", "no version at all")) is None
    assert java_version(tmp_path / "nowhere") is None


def test_an_older_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = java_at(tmp_path, release="11.0.2")
    with pytest.raises(JavaMissing) as old:
        check_java()
    assert str(old.value) == f"Java 17 not found: {java} is Java 11: {REMEDY}"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing) as old:
        check_java()
    assert str(old.value).endswith(f"{REMEDY}, then unset JAVA_HOME")


def test_a_java_that_fits_is_accepted(tmp_path: Path) -> None:
    java_at(tmp_path, release="17.0.1")
    check_java()


def test_a_wrong_java_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java_at(tmp_path, release="17")
    monkeypatch.setenv("JAVA_HOME", "/nowhere/jvm")
    with pytest.raises(JavaMissing, match="JAVA_HOME is /nowhere/jvm, which has no bin/java"):
        check_java()


def test_the_program_says_it_in_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kwire", "pipeline", "maintain", "--warehouse", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/nowhere"},
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"kwire: Java 17 not found: {REMEDY}\n")


# --- what the process prints


def test_what_is_printed_during_the_start_is_kept_within_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    output = JavaOutput()
    for number in range(2 * LINES_KEPT_MAX):
        os.write(output.descriptor, f"line {number}\n".encode())
    os.write(output.descriptor, b"the last \xff part")
    output.started()
    output.wait(WAIT_S)
    lines = output.last_lines()
    assert len(lines) == LINES_SHOWN_MAX
    assert lines[-2:] == [f"line {2 * LINES_KEPT_MAX - 1}", "the last \ufffd part"]
    assert capsys.readouterr().err == ""


def test_what_is_printed_later_is_shown_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    output = JavaOutput()
    output.show()
    os.write(output.descriptor, b"ERROR something is wrong\n\r[Stage 1:>   (0 + 2) / 8]")
    output.started()
    output.wait(WAIT_S)
    assert capsys.readouterr().err == "ERROR something is wrong\n\r[Stage 1:>   (0 + 2) / 8]"
    assert output.last_lines() == []
