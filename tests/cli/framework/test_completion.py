"""Completion: the words that the program offers, and the scripts in bash, zsh and fish."""

import os
import subprocess
from pathlib import Path

import pytest

from kwire.cli import program_parser
from kwire.cli.framework.completion import completion_of
from kwire.cli.framework.shell_scripts import SCRIPTS
from tests.support.cli import run_here
from tests.support.server import kwire_command


def words(*line: str) -> list[str]:
    return [one.word for one in completion_of(program_parser(), line).candidates]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("to",), ["topic"]),
        (("--v",), ["--version"]),
        (
            ("topic", ""),
            [
                *("list", "create", "describe", "alter", "add-partitions", "trim", "delete"),
                *("produce", "consume", "export", "import"),
            ],
        ),
        (("topic", "d"), ["describe", "delete"]),
        (("topic", "list", "--int"), ["--internal"]),
        (("topic", "list", "--bootstrap"), ["--bootstrap-server"]),
        (("topic", "list", "--internal", "--int"), []),
        (("topic", "create", "a", "--config", "x=y", "--conf"), ["--config"]),
        (("topic", "list", "-o", ""), ["table", "wide", "json", "yaml"]),
        (("topic", "list", "--output", "j"), ["json"]),
        (("topic", "list", "--output=j"), ["--output=json"]),
        (("topic", "list", "--output", "=", "j"), ["--output=json"]),
        (("topic", "list", "--output", "="), [f"--output={one}" for one in ("table", "wide", "json", "yaml")]),
        (("topic", "list", "-o", "json", "--in"), ["--internal"]),
        (("group", "reset", "g", "--shift-by", "-5", "--dr"), ["--dry-run"]),
        (("room", "create", "--retention-mode", "h"), ["hybrid"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("no-such-command", ""), []),
        (("topic", "delete", "--", "-"), []),
        (("pipeline", "rep"), ["replay"]),
    ],
)
def test_words_that_can_follow(line: tuple[str, ...], expected: list[str]) -> None:
    assert words(*line) == expected


def test_hidden_options_are_not_offered() -> None:
    assert "--json" not in words("topic", "list", "--")
    assert "--help" in words("topic", "list", "--")


@pytest.mark.parametrize(
    ("line", "files"),
    [
        (("log", "verify", ""), "directories"),
        (("log", "dump", ""), "files"),
        (("topic", "list", "--command-config", ""), "files"),
        (("serve", "--data-dir", ""), "directories"),
        (("topic", "create", ""), ""),
    ],
)
def test_files_and_directories_are_offered_where_they_belong(line: tuple[str, ...], files: str) -> None:
    assert completion_of(program_parser(), line).files == files


def test_candidates_have_descriptions() -> None:
    assert run_here("__complete", "topic", "li").out == "\nlist\tlist topics\n"


def test_the_scripts_are_printed() -> None:
    for shell, script in SCRIPTS.items():
        assert run_here("completion", shell).out == script
    assert run_here("completion", "tcsh").code == 2


BASH_DRIVER = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={last}
_kwire {program} "" ""
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["topic", "de"], ["describe", "delete"]),
        (["topic", "list", "-o", "j"], ["json"]),
        (["topic", "list", "--output", "=", "j"], ["json"]),
        (["topic", "list", "--output", "="], ["table", "wide", "json", "yaml"]),
        (["log", "verify", "folder"], ["folder with spaces"]),
    ],
)
def test_bash_completes(tmp_path: Path, line: list[str], expected: list[str]) -> None:
    (tmp_path / "folder with spaces").mkdir()
    (tmp_path / "folder.txt").touch()
    script = tmp_path / "kwire.bash"
    script.write_text(SCRIPTS["bash"])
    quoted = " ".join(f"'{word}'" for word in ["kwire", *line])
    driver = BASH_DRIVER.format(script=script, words=quoted, last=len(line), program=kwire_command())
    done = subprocess.run(["bash", "-c", driver], capture_output=True, text=True, timeout=30, check=True, cwd=tmp_path)
    assert done.stdout.splitlines() == expected
    assert done.stderr == ""


def in_shell(shell: str, program: str, tmp_path: Path) -> str:
    """Run a program of this shell, with kwire in the path and the script at $1, and return what it printed."""
    script = tmp_path / f"kwire.{shell}"
    script.write_text(SCRIPTS[shell])
    environment = {
        "PATH": f"{Path(kwire_command()).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TERM": "xterm",
        "LANG": "C.UTF-8",
    }
    driver = tmp_path / f"driver.{shell}"
    driver.write_text(program)
    return subprocess.run(
        [shell, str(driver), str(script)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout


@pytest.mark.needs_fish
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kwire topic de", ["describe", "delete"]),
        ("kwire topic list -o j", ["json"]),
        ("kwire log verify folder", ["folder/"]),
    ],
)
def test_fish_completes(tmp_path: Path, line: str, expected: list[str]) -> None:
    (tmp_path / "folder").mkdir()
    out = in_shell("fish", f"source $argv[1]\ncomplete -C '{line}'\n", tmp_path)
    assert sorted(one.partition("\t")[0] for one in out.splitlines()) == sorted(expected)


ZSH_DRIVER = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "autoload -U compinit && compinit -u -d dump && source $1"
zpty -w shell 'show() {{ print -r -- "<$BUFFER>" }}; zle -N show; bindkey "^X" show; print rea""dy'
zpty -r shell out '*ready*'
zpty -w -n shell $'{line}\\t\\x18'
zpty -r shell out '*<kwire*>*'
print -r -- "$out"
zpty -d shell
"""


@pytest.mark.needs_zsh
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("kwire topic des", "<kwire topic describe >"),
        ("kwire topic list --int", "<kwire topic list --internal >"),
        ("kwire topic list -o j", "<kwire topic list -o json >"),
        ("kwire log verify fold", "<kwire log verify folder/>"),
    ],
)
def test_zsh_completes(tmp_path: Path, line: str, expected: str) -> None:
    (tmp_path / "folder").mkdir()
    assert expected in in_shell("zsh", ZSH_DRIVER.format(line=line), tmp_path)
