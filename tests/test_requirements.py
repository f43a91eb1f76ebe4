"""Every line that kwire is held to has a test that would fail without it, or says why it has none."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
# What is built; lines of the other parts get their tests with the work that meets them.
BUILT_PARTS = ("S0", "S2", "S3")


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    """The module that writes docs/requirements.md; scripts are no package of the project."""
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


def test_every_line_of_what_is_built_has_a_test(page: ModuleType) -> None:
    proven = page.proofs()
    bare = [
        number
        for number, line in page.requirements().items()
        if line.part in BUILT_PARTS and number not in proven and not line.note
    ]
    assert bare == [], "no test is marked with proves() for these lines of tests/requirements.txt"


def test_tests_prove_only_lines_that_there_are(page: ModuleType) -> None:
    known = page.requirements()
    strangers = {number: [str(one) for one in by] for number, by in page.proofs().items() if number not in known}
    assert strangers == {}


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


def test_a_mark_counts_on_a_test_a_class_and_a_module(page: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_it.py").write_text(
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
        "def not_a_test(): ...\n"
    )
    found = {number: [str(one) for one in by] for number, by in page.proofs(tmp_path).items()}
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


def test_a_line_that_is_no_requirement_is_refused(page: ModuleType) -> None:
    with pytest.raises(ValueError, match="neither a heading nor a requirement: hello"):
        page.read_lines("== S0 part\nhello\n")
