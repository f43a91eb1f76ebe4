"""docs/requirements.md, from the lines of tests/requirements.txt and the tests that say which of them they prove.

A test says so with `@pytest.mark.proves("S0-22", "S0-23")`, alone or for a class or module, or with its name:
`test_s0_58_…`. Test files are read, not run: no page should need a server to be written.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LINES = ROOT / "tests" / "requirements.txt"

_LINE = re.compile(r"((?:S\d|C)-\d+) (.+)")
_NAMED = re.compile(r"test((?:_s\d_\d+)+)_")
_NUMBER = re.compile(r"s(\d)_(\d+)")

_INTRODUCTION = """\
# Requirements

This page is written by `scripts/generate` from `tests/requirements.txt` and from the tests that are marked with
`proves`. A marked test fails if its line does not hold.

| part | lines | with a test |
|---|---:|---:|"""


class Requirement(NamedTuple):
    """`note` says why no test is named, where none can be."""

    number: str
    text: str
    note: str

    @property
    def part(self) -> str:
        return self.number.partition("-")[0]


class Heading(NamedTuple):
    text: str
    is_part: bool


class Proof(NamedTuple):
    path: Path
    test: str

    def __str__(self) -> str:
        return f"{self.path.as_posix()}::{self.test}"


def read_lines(text: str) -> list[Requirement | Heading]:
    """The requirements in their order, with the headings between them."""
    found: list[Requirement | Heading] = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith(("== ", "-- ")):
            found.append(Heading(line[3:], is_part=line.startswith("=")))
            continue
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise ValueError(f"neither a heading nor a requirement: {line}")
        words, _, note = matched[2].partition(" || ")
        found.append(Requirement(matched[1], words, note))
    return found


def requirements() -> dict[str, Requirement]:
    lines = [one for one in read_lines(LINES.read_text(encoding="utf-8")) if isinstance(one, Requirement)]
    return {one.number: one for one in lines}


def proofs(root: Path = ROOT) -> dict[str, list[Proof]]:
    """Tests by the number that they prove, in the order of their files."""
    found: dict[str, list[Proof]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        for test, numbers in _marked(tree):
            for number in numbers:
                found.setdefault(number, []).append(Proof(path.relative_to(root), test))
    return found


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    of_module = [
        number
        for node in tree.body
        if isinstance(node, ast.Assign) and any(_is_name(target, "pytestmark") for target in node.targets)
        for number in _numbers(node.value)
    ]
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            of_class = [*of_module, *_decorated(node)]
            for inner in node.body:
                yield from _of_test(inner, of_class, f"{node.name}::")
            if of_class and _is_state_machine_test(node):
                yield node.name, of_class
        elif of_module and isinstance(node, ast.Assign) and _is_test_case(node.targets[0]):
            yield ast.unparse(node.targets[0]), of_module
        else:
            yield from _of_test(node, of_module, "")


def _of_test(node: ast.stmt, inherited: list[str], prefix: str) -> Iterator[tuple[str, list[str]]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
        named = _NAMED.match(node.name)
        own = [f"S{part}-{number}" for part, number in _NUMBER.findall(named[1])] if named else []
        numbers = dict.fromkeys([*own, *_decorated(node), *inherited])
        if numbers:
            yield prefix + node.name, list(numbers)


def _is_state_machine_test(node: ast.ClassDef) -> bool:
    """hypothesis makes a test of a class: a TestCase, whose methods are not written down."""
    return node.name.startswith("Test") and not any(
        isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test_")
        for inner in node.body
    )


def _is_test_case(target: ast.expr) -> bool:
    """`TestRooms = RoomMachine.TestCase`, as hypothesis has it."""
    return isinstance(target, ast.Name) and target.id.startswith("Test")


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    return [number for decorator in node.decorator_list for number in _numbers(decorator)]


def _numbers(expression: ast.expr) -> Iterator[str]:
    """The arguments of every `….proves(…)` in an expression; a list of marks is one too."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "proves":
            for argument in node.args:
                if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
                    raise ValueError(f"line {node.lineno}: proves() takes numbers like 'S0-22'")
                yield argument.value


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def render() -> str:
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    lines, proven = read_lines(LINES.read_text(encoding="utf-8")), proofs()
    yield _INTRODUCTION
    for heading in (one for one in lines if isinstance(one, Heading) and one.is_part):
        part = heading.text.partition(" ")[0]
        numbers = [one.number for one in lines if isinstance(one, Requirement) and one.part == part]
        yield f"| {heading.text} | {len(numbers)} | {sum(number in proven for number in numbers)} |"
    for line in lines:
        if isinstance(line, Heading):
            yield f"\n{'##' if line.is_part else '###'} {line.text}"
            if not line.is_part:
                yield "\n| number | requirement | proven by |\n|---|---|---|"
        else:
            by = "<br>".join(f"`{proof}`" for proof in proven.get(line.number, ()))
            yield f"| {line.number} | {_cell(line.text)} | {by or _cell(line.note)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
