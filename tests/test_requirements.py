"""Every requirement of what is built is proved by a test of the default run, or measured by a benchmark.

The requirements are the lines of tests/requirements.txt; docs/requirements.md shows them with their proofs.
"""

import importlib
import importlib.util
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.needs import NEEDS

ROOT = Path(__file__).resolve().parents[1]
# The other parts get their tests with the work that meets their requirements.
BUILT_PARTS = ("S0", "S1", "S2", "S3", "S4")
# These need several nodes, or processes around the Stream Engine. tests/requirements.txt says so, and names what they
# will use.
OPEN = frozenset((*(f"S1-{number}" for number in (13, 24, 30, 38, 39, 40, 61)), "S4-1", "S4-6"))
# Tests of the benchmarks look for figures, not for how good they are.
BENCH_TESTS = "test_bench_"


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    """The module that writes docs/requirements.md; scripts are not a package of the project."""
    spec = importlib.util.spec_from_file_location(
        "generated_requirements", ROOT / "scripts" / "generated" / "requirements.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def claimed(page: ModuleType) -> dict[str, list[Any]]:
    """The tests that claim to prove each number."""
    found: dict[str, list[Any]] = page.claims()
    return found


def test_every_line_of_what_is_built_is_proved_or_measured(page: ModuleType, claimed: dict[str, list[Any]]) -> None:
    proven = page.proofs_among(claimed)
    bare = [
        number
        for number, line in page.requirements().items()
        if line.part in BUILT_PARTS and number not in OPEN and line.status(proven) == page.Status.NOT_YET
    ]
    assert all(page.requirements()[number].note.startswith("open: ") for number in OPEN)
    assert bare == [], "no test of the default run is marked with proves() for these lines of tests/requirements.txt"


def test_every_proof_is_in_the_default_run(claimed: dict[str, list[Any]]) -> None:
    left_out = {number: [str(one) for one in by if one.left_out_by] for number, by in claimed.items()}
    assert {number: by for number, by in left_out.items() if by} == {}


def test_the_default_run_installs_every_program_of_its_tests(page: ModuleType) -> None:
    """Marks that leave a test out are `full`, and those of programs that scripts/test does not install."""
    script = (ROOT / "scripts" / "test").read_text(encoding="utf-8")
    installed = {mark for mark, (title, _) in NEEDS.items() if f"need {title} " in script.replace('"', "")}
    installed |= {"needs_spark"} if "scripts/install dev spark" in script else set()
    assert {"full", *NEEDS} - installed == page.LEFT_OUT_BY


def test_tests_prove_only_lines_that_there_are(page: ModuleType, claimed: dict[str, list[Any]]) -> None:
    known = page.requirements()
    strangers = {number: [str(one) for one in by] for number, by in claimed.items() if number not in known}
    assert strangers == {}


def test_what_is_measured_is_claimed_by_no_test(page: ModuleType, claimed: dict[str, list[Any]]) -> None:
    measured = {number for number, line in page.requirements().items() if line.measured}
    assert {number: [str(one) for one in claimed[number]] for number in measured & claimed.keys()} == {}
    by_bench = {number: one.path.name for number, by in claimed.items() for one in by if BENCH_TESTS in one.path.name}
    assert by_bench == {}


def test_measured_lines_name_a_command_of_the_benchmarks(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The family's own parser of options takes the command, which fails for a work that is not there."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    measured = {number: line for number, line in page.requirements().items() if line.measured}
    assert measured
    for number, line in measured.items():
        program, family, *options = shlex.split(line.measured)
        assert program == "scripts/bench", number
        given = importlib.import_module(f"benchmark.{family}.options").parse(options)
        assert "--only" in options, f"{number}: the command prints more than the figure"
        assert given.works, number


def test_figures_are_where_the_page_says(page: ModuleType) -> None:
    text = page.BENCHMARKS.read_text(encoding="utf-8")
    anchors = page.figure_anchors(text)
    chapters = {one.splitlines()[0]: one for one in text.partition(f"\n## {page.FIGURES}\n")[2].split("\n### ")[1:]}
    assert list(chapters) == list(anchors)
    for number, line in page.requirements().items():
        if line.figures:
            work = line.measured.partition("--only ")[2].partition(" ")[0]
            assert work in chapters[line.figures], f"{number}: docs/benchmarks.md has no figure of {work}"


def test_numbers_are_given_once_and_in_order_without_a_gap(page: ModuleType) -> None:
    lines = [
        one.number
        for one in page.read_lines(page.LINES.read_text(encoding="utf-8"))
        if isinstance(one, page.Requirement)
    ]
    by_part: dict[str, list[int]] = {}
    for part, _, number in (line.partition("-") for line in lines):
        by_part.setdefault(part, []).append(int(number))
    assert list(by_part) == ["S0", "S1", "S2", "S3", "S4", "C"]
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in by_part.values())


def claims_of(page: ModuleType, directory: Path, text: str) -> dict[str, list[Any]]:
    """The claims of a project with one test file."""
    (directory / "tests").mkdir()
    (directory / "tests" / "test_it.py").write_text(text)
    found: dict[str, list[Any]] = page.claims(directory)
    return found


def test_a_mark_counts_on_a_test_a_class_and_a_module(page: ModuleType, tmp_path: Path) -> None:
    claimed = claims_of(
        page,
        tmp_path,
        "pytestmark = [pytest.mark.slow, pytest.mark.proves('S0-1')]\n"
        "@pytest.mark.proves('S0-2', 'S0-3')\n"
        "def test_plain(): ...\n"
        "@pytest.mark.proves('S0-4')\n"
        "class TestAll:\n"
        "    @pytest.mark.proves('S0-5')\n"
        "    async def test_inner(self): ...\n"
        "def test_s1_7_s1_8_by_its_name(): ...\n"
        "@pytest.mark.proves('S0-6')\n"
        "class TestMachine(Machine.TestCase): ...\n"
        "TestOther = Other.TestCase\n"
        "def not_a_test(): ...\n",
    )
    found = {number: [str(one) for one in by] for number, by in claimed.items()}
    file = "tests/test_it.py::"
    by_name = f"{file}test_s1_7_s1_8_by_its_name"
    machine, inner = f"{file}TestMachine", f"{file}TestAll::test_inner"
    assert found == {
        "S0-1": [f"{file}test_plain", inner, by_name, machine, f"{file}TestOther"],
        "S0-2": [f"{file}test_plain"],
        "S0-3": [f"{file}test_plain"],
        "S0-4": [inner],
        "S0-5": [inner],
        "S1-7": [by_name],
        "S1-8": [by_name],
        "S0-6": [machine],
    }
    assert page.proofs_among(claimed) == claimed


@pytest.mark.parametrize(
    ("text", "left_out_by"),
    [
        ("@pytest.mark.full('long')\n@pytest.mark.proves('S0-1')\ndef test_it(): ...\n", "full"),
        ("@pytest.mark.needs_go\n@pytest.mark.proves('S0-1')\ndef test_it(): ...\n", "needs_go"),
        ("@pytest.mark.needs_node\n@pytest.mark.proves('S0-1')\ndef test_it(): ...\n", ""),
        ("pytestmark = pytest.mark.needs_go\n@pytest.mark.proves('S0-1')\ndef test_it(): ...\n", "needs_go"),
        ("SLOW = pytest.mark.full('long')\n@SLOW\n@pytest.mark.proves('S0-1')\ndef test_it(): ...\n", "full"),
        ("@pytest.mark.full('long')\nclass TestIt:\n    def test_s0_1_by_its_name(self): ...\n", "full"),
        # One parameter of two is left out, the other one proves it.
        (
            "@pytest.mark.parametrize('n', [1, pytest.param(2, marks=pytest.mark.full('long'))])\n"
            "@pytest.mark.proves('S0-1')\ndef test_it(n): ...\n",
            "",
        ),
    ],
)
def test_what_the_default_run_leaves_out_proves_nothing(
    page: ModuleType, tmp_path: Path, text: str, left_out_by: str
) -> None:
    claimed = claims_of(page, tmp_path, text)
    assert [one.left_out_by for one in claimed["S0-1"]] == [left_out_by]
    assert bool(page.proofs_among(claimed)) is not bool(left_out_by)


def test_a_status_follows_from_the_fields_of_a_line_and_its_proofs(page: ModuleType) -> None:
    _, plain, measured, other = page.read_lines(
        "== S0 part\n"
        "S0-1 It works.\n"
        "S0-2 Under 1 ms. || measured: scripts/bench rooms --only publish || figures: Rooms || note: on two cores\n"
        "S0-3 Deno only. || does not apply: Python\n"
    )
    assert plain.status({}) == "not yet"
    assert plain.status({"S0-1": []}) == "proved"
    assert measured.status({}) == measured.status({"S0-2": []}) == "measured"
    assert (measured.text, measured.figures, measured.note) == ("Under 1 ms.", "Rooms", "on two cores")
    assert other.status({}) == "does not apply"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("hello", "neither a heading nor a requirement: hello"),
        ("S0-1 It works. || because", "S0-1: not a field, or named twice: because"),
        ("S0-1 It works. || reason: because", "S0-1: not a field"),
        ("S0-1 It works. || note: a || note: b", "S0-1: not a field, or named twice: note: b"),
        ("S0-1 Under 1 ms. || figures: Rooms", "S0-1: figures without the command"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused(page: ModuleType, line: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        page.read_lines(f"== S0 part\n{line}\n")


def test_subchapters_with_figures_have_the_anchors_that_github_gives_them(page: ModuleType) -> None:
    before = "# Benchmarks\n## Rooms\n## The event store\n"
    figures = "## Figures\n### Rooms\n### The event store\n### Parts (all)\n"
    assert page.figure_anchors(f"{before}{figures}## Rooms\n### Not figures\n") == {
        "Rooms": "rooms-1",
        "The event store": "the-event-store-1",
        "Parts (all)": "parts-all",
    }
