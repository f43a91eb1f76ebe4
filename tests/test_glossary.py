"""The glossary and the code use the same words."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ENTRY = re.compile(r"^- \*\*(?P<term>[^*]+)\*\* \(`(?P<module>[^`]+)`\): (?P<meaning>.+)$", re.MULTILINE)
ENTRIES = [match.groupdict() for match in ENTRY.finditer((ROOT / "docs/glossary.md").read_text())]
# "StreamLog" and "stream_log" are "stream log".
WORD_STARTS = re.compile(r"(?<=[a-z])(?=[A-Z])|_")


def words_of(text: str) -> str:
    return re.sub(r"\s+", " ", WORD_STARTS.sub(" ", text)).lower()


def test_every_line_of_the_glossary_is_an_entry() -> None:
    lines = [line for line in (ROOT / "docs/glossary.md").read_text().splitlines() if line.startswith("-")]
    assert len(lines) == len(ENTRIES) > 0


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: str(entry["term"]))
def test_the_code_uses_the_terms_of_the_glossary(entry: dict[str, str]) -> None:
    module = ROOT / entry["module"]
    assert module.is_file(), "the module has another name by now"
    assert words_of(entry["term"]) in words_of(module.read_text()), "the module does not use the word"
