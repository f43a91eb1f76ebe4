"""The list of handlers, what each says of itself, the documentation and ApiVersions: one truth in four places."""

import re
import sys
from pathlib import Path

import pytest

from kwire.handlers import HANDLERS
from kwire.handlers.shared.context import Handler
from kwire.wire.apis import APIS
from kwire.wire.messages.api_versions import ApiVersionsRequest
from tests.support.node import QuietNode, in_loop

PAGE = Path(__file__).resolve().parents[2] / "docs" / "protocol.md"
ROW = re.compile(r"\| (\d+) \| (\w+) \| ([\d-]+) \| (?:\d+|never) \|")

# What a broker needs for its log, its catalogue and ordinary groups; further keys come with what they are about.
EXPECTED_KEYS = {
    0,
    1,
    2,
    3,
    *range(8, 15),
    *range(18, 24),
    *range(29, 33),
    33,
    34,
    35,
    37,
    43,
    44,
    45,
    46,
    55,
    57,
    60,
    61,
    64,
    74,
    75,
}


def _rows(section: str) -> dict[int, tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8").partition(f"## {section}\n")[2].partition("\n## ")[0]
    return {int(key): (name, versions) for key, name, versions in ROW.findall(text)}


def test_keys_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\nkeys declared: {len(APIS)} of 79, keys served at Kafka 4.4's full range: {len(HANDLERS)}")
    assert len(APIS) == 79
    assert HANDLERS.keys() >= EXPECTED_KEYS


def test_what_is_served_is_declared_in_the_full_range() -> None:
    for key, handler in HANDLERS.items():
        assert handler.api is APIS[key]


def test_the_page_tells_what_is_served_and_what_is_not() -> None:
    told = {key: (handler.api.name, str(handler.api.versions)) for key, handler in HANDLERS.items()}
    assert _rows("Served") == told
    rest = {key: (APIS[key].name, str(APIS[key].versions)) for key in APIS.keys() - HANDLERS.keys()}
    assert _rows("Declared and not served yet") == rest


@in_loop
async def test_api_versions_tells_the_same(tmp_path: Path) -> None:
    with QuietNode(tmp_path) as node:
        answer = await node.ask(ApiVersionsRequest(client_software_name="test", client_software_version="1"), 4)
    listed = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert listed == {key: (one.api.first_version, one.api.last_version) for key, one in HANDLERS.items()}


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.api.name)
def test_a_handler_begins_with_its_name_and_versions(handler: Handler) -> None:
    text = sys.modules[handler.handle.__module__].__doc__ or ""
    assert text.startswith(f"{handler.api.name} {handler.api.versions}: ")


@pytest.mark.parametrize("handler", HANDLERS.values(), ids=lambda handler: handler.api.name)
def test_a_handler_says_what_its_last_version_brought(handler: Handler) -> None:
    """Where there are several, the newest one is named behind the first line, alone or in a range."""
    if handler.api.first_version == handler.api.last_version:
        return
    rest = (sys.modules[handler.handle.__module__].__doc__ or "").partition("\n")[2]
    last = handler.api.last_version
    assert re.search(rf"(?<![\d.]){last}(?![\d.]*\d)", rest), f"nothing about version {last}"
