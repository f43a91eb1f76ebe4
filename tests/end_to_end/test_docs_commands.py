"""Every command block of README.md and docs/ runs as a person would type it, or stands on a list with a reason."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages.allowed import ALLOWED
from tests.support.pages.blocks import COMMAND_KINDS, MARKS, OTHER_KINDS, Block, blocks_of, pages
from tests.support.pages.names import kinds_of_names
from tests.support.pages.run import PageRun
from tests.support.pages.terminal import password_of

ALL_BLOCKS = {page: blocks_of(page) for page in pages()}
# Programs that the commands of a page need.
NEEDS: dict[str, pytest.MarkDecorator | list[pytest.MarkDecorator]] = {
    "README.md": pytest.mark.needs_kcat,
    "docs/security.md": pytest.mark.needs_kcat,
    "docs/pipeline.md": [pytest.mark.needs_spark, pytest.mark.timeout(300)],
    "docs/monitoring/README.md": pytest.mark.needs_prometheus,
    **dict.fromkeys(("docs/keys.md", "docs/s1-events.md", "docs/tenants.md", "docs/webhooks.md"), pytest.mark.needs_jq),
}
# Files that have a password because their page says so.
WITH_PASSWORD = {"app.properties", "spark.properties"}


def is_allowed(block: Block) -> bool:
    return any(block.page == page and block.first_line.startswith(start) for page, start in ALLOWED)


PAGES_WITH_COMMANDS = [
    page for page, blocks in ALL_BLOCKS.items() if any(block.is_run and not is_allowed(block) for block in blocks)
]


@pytest.fixture
def page_run(tmp_path: Path) -> Iterator[PageRun]:
    run = PageRun(tmp_path)
    yield run
    run.close()


@pytest.mark.parametrize("page", [pytest.param(page, marks=NEEDS.get(page, ())) for page in PAGES_WITH_COMMANDS])
def test_the_commands_of_a_page_do_what_it_says(page: str, page_run: PageRun, tmp_path: Path) -> None:
    is_left_out = False
    for block in ALL_BLOCKS[page]:
        if block.is_run:
            is_left_out = is_allowed(block)
        # The output of a block that is not run is not compared.
        if not (is_left_out and (block.is_run or block.kind == "text")):
            page_run.run(block)
    for path in tmp_path.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name not in WITH_PASSWORD:
            content = path.read_bytes()
            for user in ("admin", "app", "alice", "spark"):
                assert password_of(user).encode() not in content, f"{path} has the password of {user}"


def test_every_command_block_is_run_or_has_a_reason() -> None:
    counts = Counter[str]()
    for page, blocks in ALL_BLOCKS.items():
        for block in blocks:
            assert block.kind in (*COMMAND_KINDS, *OTHER_KINDS), f"{block.place}: unknown language {block.kind!r}"
            assert block.mark in MARKS, f"{block.place}: unknown mark {block.mark!r}"
            assert not block.hides_commands, f"{block.place}: commands in a block without a language"
            if block.is_run:
                counts["allowed" if is_allowed(block) else "run"] += 1
        text = (Path(__file__).resolve().parents[2] / page).read_text(encoding="utf-8")
        assert text.count("```") == 2 * len(blocks), f"{page}: a block was not recognised"
    starts = [(block.page, block.first_line) for blocks in ALL_BLOCKS.values() for block in blocks if block.is_run]
    for page, start in ALLOWED:
        is_known = any(one == page and line.startswith(start) for one, line in starts)
        assert is_known, f"{page} has no longer a block that begins with {start!r}"
    print(f"{counts['run']} command blocks are run, {counts['allowed']} have a reason not to be")


def test_the_tests_that_reasons_name_exist() -> None:
    root = Path(__file__).resolve().parents[2]
    for reason in set(ALLOWED.values()):
        folder = ""
        for name in re.findall(r"(?:tests|scripts)/[\w/*.]+\w|test_[\w*]+\.py", reason):
            path = name if "/" in name else f"{folder}/{name}"
            folder = path.rpartition("/")[0]
            assert list(root.glob(path)), f"{reason}: there is no {path}"


def test_schemas_name_the_types_of_their_properties() -> None:
    blocks = [block for blocks in ALL_BLOCKS.values() for block in blocks if '"required"' in block.content]
    assert len(blocks) > 3
    assert [block.place for block in blocks if '"properties"' not in block.content] == []


def test_one_name_stands_for_one_thing_on_all_pages() -> None:
    found = kinds_of_names(block for blocks in ALL_BLOCKS.values() for block in blocks)
    assert len(found) > 5
    assert {name: dict(kinds) for name, kinds in found.items() if len(kinds) > 1} == {}
