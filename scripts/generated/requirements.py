"""Generates docs/requirements.md from the lines of tests/requirements.txt and the tests that claim to prove them.

A test claims a line with the mark `@pytest.mark.proves("S0-22", "S0-23")`, also of its class or module, or with its
name: `test_s0_58_…`. A claim is a proof only if the default run (`scripts/test` without KWIRE_TEST_EFFORT) includes the
test. Targets of speed and size are not proved but measured, by a command that tests/requirements.txt names. Test files
are parsed, not run, so that the page can be generated without a server.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LINES = ROOT / "tests" / "requirements.txt"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
# The chapter of BENCHMARKS whose subchapters have figures.
FIGURES = "Figures"
# Marks of tests that the default run omits, because they take too long or need a program that is not installed.
LEFT_OUT_BY = frozenset({"full", "needs_go", "needs_tmpfs"})

_LINE = re.compile(r"((?:S\d|C)-\d+) (.+)")
_NAMED = re.compile(r"test((?:_s\d_\d+)+)_")
_NUMBER = re.compile(r"s(\d)_(\d+)")
_HEADING = re.compile(r"(#+) (.+)")
_NO_ANCHOR = re.compile(r"[^\w\- ]")

_INTRODUCTION = """\
# Requirements

This page is written by `scripts/generate` from `tests/requirements.txt` and from the tests that are marked with
`proves`.

- **proved**: a test of the default run (`scripts/test`) fails if the line does not hold.
- **measured**: a target of speed or size, which depends on the machine. The command prints the figure and whether the
  target is met; no test asserts it.
- **not yet**: no test proves the line. Most such lines belong to later work.
- **does not apply**: the line asks nothing of kwire.
"""


class Status(StrEnum):
    """Whether and how a requirement is verified."""

    PROVED = "proved"
    MEASURED = "measured"
    NOT_YET = "not yet"
    DOES_NOT_APPLY = "does not apply"


class Requirement(NamedTuple):
    """A line of tests/requirements.txt. That file describes the fields."""

    number: str
    text: str
    measured: str = ""
    figures: str = ""
    note: str = ""
    does_not_apply: str = ""

    @property
    def part(self) -> str:
        return self.number.partition("-")[0]

    def status(self, proofs: "Mapping[str, list[Claim]]") -> Status:
        if self.does_not_apply:
            return Status.DOES_NOT_APPLY
        if self.measured:
            return Status.MEASURED
        return Status.PROVED if self.number in proofs else Status.NOT_YET


class Heading(NamedTuple):
    text: str
    is_part: bool


class Claim(NamedTuple):
    """A test that claims to prove a requirement. `left_out_by` is the mark that excludes it from the default run."""

    path: Path
    test: str
    left_out_by: str = ""

    def __str__(self) -> str:
        return f"{self.path.as_posix()}::{self.test}"


def read_lines(text: str) -> list[Requirement | Heading]:
    """Return the requirements and the headings, in the order of the file."""
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
        words, *fields = matched[2].split(" || ")
        found.append(Requirement(matched[1], words, **_fields(matched[1], fields)))
    return found


def _fields(number: str, fields: list[str]) -> dict[str, str]:
    """Parse the fields after the text of a requirement. Return them by their names in Requirement."""
    found: dict[str, str] = {}
    for field in fields:
        name, separator, value = field.partition(": ")
        key = name.replace(" ", "_")
        if not separator or key not in Requirement._field_defaults or key in found:
            raise ValueError(f"{number}: not a field, or named twice: {field}")
        found[key] = value
    if "figures" in found and "measured" not in found:
        raise ValueError(f"{number}: figures without the command that measures them")
    return found


def requirements() -> dict[str, Requirement]:
    lines = [one for one in read_lines(LINES.read_text(encoding="utf-8")) if isinstance(one, Requirement)]
    return {one.number: one for one in lines}


def claims(root: Path = ROOT) -> dict[str, list[Claim]]:
    """Return the claims by requirement number, in the order of the test files."""
    found: dict[str, list[Claim]] = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        # Most files contain no claim, and to parse all of them would take seconds.
        if "proves(" not in text and not _NAMED.search(text):
            continue
        for test, marks in _marked(ast.parse(text, str(path))):
            left_out_by = next((name for name in marks.names if name in LEFT_OUT_BY), "")
            for number in dict.fromkeys(marks.numbers):
                found.setdefault(number, []).append(Claim(path.relative_to(root), test, left_out_by))
    return found


def proofs_among(claimed: Mapping[str, list[Claim]]) -> dict[str, list[Claim]]:
    """Return the claims of tests that the default run includes."""
    included = {number: [one for one in by if not one.left_out_by] for number, by in claimed.items()}
    return {number: by for number, by in included.items() if by}


class Marks(NamedTuple):
    """The marks of a test, class or module: the requirement numbers of `proves`, and the names of all marks."""

    numbers: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def with_more(self, *others: "Marks") -> "Marks":
        """Return the marks of `others`, followed by these marks."""
        return Marks(
            tuple(number for one in (*others, self) for number in one.numbers),
            tuple(name for one in (*others, self) for name in one.names),
        )


def _marked(tree: ast.Module) -> Iterator[tuple[str, Marks]]:
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    of_module = _marks(constants["pytestmark"], constants) if "pytestmark" in constants else Marks()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            of_class = of_module.with_more(*_decorated(node, constants))
            for inner in node.body:
                yield from _of_test(inner, of_class, constants, f"{node.name}::")
            if _is_state_machine_test(node):
                yield node.name, of_class
        elif isinstance(node, ast.Assign) and _is_test_case(node.targets[0]):
            yield ast.unparse(node.targets[0]), of_module
        else:
            yield from _of_test(node, of_module, constants, "")


def _of_test(
    node: ast.stmt, inherited: Marks, constants: Mapping[str, ast.expr], prefix: str
) -> Iterator[tuple[str, Marks]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
        named = _NAMED.match(node.name)
        own = [f"S{part}-{number}" for part, number in _NUMBER.findall(named[1])] if named else []
        yield prefix + node.name, inherited.with_more(Marks(tuple(own)), *_decorated(node, constants))


def _is_state_machine_test(node: ast.ClassDef) -> bool:
    """Return whether the class is a TestCase of hypothesis, whose test methods are not in the source."""
    return node.name.startswith("Test") and not any(
        isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test_")
        for inner in node.body
    )


def _is_test_case(target: ast.expr) -> bool:
    """Return whether the target belongs to an assignment such as `TestRooms = RoomMachine.TestCase` (hypothesis)."""
    return isinstance(target, ast.Name) and target.id.startswith("Test")


def _decorated(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, constants: Mapping[str, ast.expr]
) -> list[Marks]:
    return [_marks(decorator, constants) for decorator in node.decorator_list]


def _marks(expression: ast.expr, constants: Mapping[str, ast.expr]) -> Marks:
    """Return the marks of an expression: `pytest.mark.full("…")`, a list of marks, or the name of a module constant.

    Marks of single parameters (`pytest.param`) are ignored, because the default run includes the other parameters.
    """
    match expression:
        case ast.List(elements) | ast.Tuple(elements):
            return Marks().with_more(*(_marks(one, constants) for one in elements))
        case ast.Name(name) if name in constants:
            return _marks(constants[name], {key: value for key, value in constants.items() if key != name})
        case ast.Call(ast.Attribute(_, "proves"), arguments):
            return Marks(tuple(_number(one) for one in arguments), ("proves",))
        case ast.Call(ast.Attribute(_, name)) | ast.Attribute(_, name):
            return Marks(names=(name,))
        case _:
            return Marks()


def _number(argument: ast.expr) -> str:
    if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
        raise ValueError(f"line {argument.lineno}: proves() takes numbers like 'S0-22'")
    return argument.value


def figure_anchors(page: str) -> dict[str, str]:
    """Return GitHub's anchors of the subchapters of FIGURES, by heading."""
    found: dict[str, str] = {}
    used: dict[str, int] = {}
    chapter = ""
    for line in page.splitlines():
        if (matched := _HEADING.fullmatch(line)) is None:
            continue
        anchor = _NO_ANCHOR.sub("", matched[2].lower()).replace(" ", "-")
        used[anchor] = used.get(anchor, -1) + 1
        if matched[1] == "##":
            chapter = matched[2]
        elif chapter == FIGURES:
            found[matched[2]] = f"{anchor}-{used[anchor]}" if used[anchor] else anchor
    return found


def render() -> str:
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    lines, proven = read_lines(LINES.read_text(encoding="utf-8")), proofs_among(claims())
    yield _INTRODUCTION
    yield f"| part | lines | {' | '.join(Status)} |\n|---|---:|{'---:|' * len(Status)}"
    for heading in (one for one in lines if isinstance(one, Heading) and one.is_part):
        part = heading.text.partition(" ")[0]
        statuses = [one.status(proven) for one in lines if isinstance(one, Requirement) and one.part == part]
        counts = " | ".join(str(statuses.count(status)) for status in Status)
        yield f"| {heading.text} | {len(statuses)} | {counts} |"
    anchors = figure_anchors(BENCHMARKS.read_text(encoding="utf-8"))
    for line in lines:
        if isinstance(line, Heading):
            yield f"\n{'##' if line.is_part else '###'} {line.text}"
            if not line.is_part:
                yield "\n| number | requirement | status | by |\n|---|---|---|---|"
        else:
            by = "<br>".join(_grounds(line, proven.get(line.number, []), anchors))
            yield f"| {line.number} | {_cell(line.text)} | {line.status(proven)} | {by} |"


def table_of_part(part: str) -> str:
    """A table with the lines of one part and the names of the tests that prove them, or what is open."""
    lines, proven = requirements(), proofs_among(claims())
    rows = ["| number | line | tests |", "|---|---|---|"]
    for line in lines.values():
        if line.part == part:
            tests = [f"`{name}`" for name in dict.fromkeys(proof.test for proof in proven.get(line.number, []))]
            by = "<br>".join(tests) or _cell(line.note)
            rows.append(f"| {line.number} | {_cell(line.text)} | {by} |")
    return "\n".join(rows)


def _grounds(line: Requirement, proofs: list[Claim], anchors: Mapping[str, str]) -> Iterator[str]:
    """Yield the reasons for the status of a requirement: proofs, the command that measures it, and remarks."""
    yield from (f"`{proof}`" for proof in proofs)
    if line.measured:
        figures = f": [figures]({BENCHMARKS.name}#{anchors[line.figures]})" if line.figures else ""
        yield f"`{line.measured}`{figures}"
    yield from (_cell(text) for text in (line.note, line.does_not_apply) if text)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
