"""The fenced blocks of a page."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
# Blocks of these languages are run.
COMMAND_KINDS = ("sh", "console", "python")
# Blocks of these languages are files or expected output.
OTHER_KINDS = ("", "text", "properties", "ini", "json", "yaml", "js", "nginx")
MARKS = ("", "fails", "endless")
_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w*) ?(?P<mark>\w*)\n(?P<content>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)
_COMMAND_START = re.compile(
    r"^\s*(\$ |scripts/|(kwire(?= [a-z])|\S*/kwire|curl|kcat|kafka-[a-z-]+(\.sh)?|docker|useradd|systemctl) "
    r"|(pip|python3?|pytest|prometheus|promtool) )"
)
_HERE_DOCUMENT = re.compile(r"<<'(?P<end>\w+)'$", re.MULTILINE)
_FILE_NAME = re.compile(r"# (?P<name>[\w.-]+\.(py|properties|ini|json|yaml|yml|ndjson))\b")


class Block(NamedTuple):
    """A fenced block. `line` is the number of its first line."""

    page: str
    line: int
    kind: str
    mark: str
    content: str

    @property
    def first_line(self) -> str:
        return self.content.partition("\n")[0].strip()

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """The name under which the block is saved, from its first line."""
        match = _FILE_NAME.match(self.content)
        return match["name"] if match else None

    @property
    def is_run(self) -> bool:
        return self.kind in COMMAND_KINDS and not (self.kind == "python" and self.file_name)

    @property
    def hides_commands(self) -> bool:
        """Whether a block without a language has lines that look like commands."""
        return self.kind == "" and any(_COMMAND_START.match(line) for line in self.content.splitlines())


def pages() -> list[str]:
    """README.md and the pages of docs/, without those that only a developer of kwire reads."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [str(path.relative_to(ROOT)) for path in found if "decisions" not in path.parts]


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    found = []
    for match in _BLOCK.finditer(text):
        lines = match["content"].splitlines(keepends=True)
        content = "".join(line.removeprefix(match["indent"]) for line in lines)
        line = text.count("\n", 0, match.start()) + 2
        found.append(Block(page, line, match["kind"], match["mark"], content))
    return found


def commands_of(lines: list[str]) -> list[str]:
    """Join lines that continue the line before: after a backslash, inside quotes, and text for a command."""
    commands: list[str] = []
    pending = ""
    for line in lines:
        # Text for a command ("here document") may have anything up to its last line.
        here = _HERE_DOCUMENT.search(pending)
        if here is not None:
            pending += f"\n{line}"
            if line == here["end"]:
                commands.append(pending)
                pending = ""
            continue
        pending = f"{pending}\n{line}" if pending else line
        if not pending.strip() or pending.lstrip().startswith("#"):
            pending = ""
        elif not line.endswith("\\") and _is_complete(pending) and not _HERE_DOCUMENT.search(line):
            commands.append(pending)
            pending = ""
    assert not pending, f"the last command does not end: {pending}"
    return commands


def _is_complete(command: str) -> bool:
    try:
        shlex.split(command, comments=True)
    except ValueError:
        return False
    return True


class Step(NamedTuple):
    """A command of a `console` block and what it prints."""

    command: str
    output: list[str]


def steps_of(content: str) -> list[Step]:
    """Divide a `console` block. A command may have several lines if its quotes or backslashes say so."""
    steps: list[Step] = []
    pending = ""
    for line in content.splitlines():
        if pending or line.startswith("$ "):
            pending = f"{pending}\n{line}" if pending else line.removeprefix("$ ")
            if not line.endswith("\\") and _is_complete(pending):
                steps.append(Step(pending, []))
                pending = ""
        else:
            steps[-1].output.append(line)
    return steps
