"""What can be seen of the clients without a server: what they import, and that the types name what there is."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kwire.client
from tests.support.javascript import MODULE

CLIENT = Path(kwire.client.__file__).parent
TYPES = MODULE.with_name("kwire.d.ts")

SHAPE = """
const module = await import(process.argv[1]);
const client = new module.KwireClient();
const named = (object) => Object.getOwnPropertyNames(Object.getPrototypeOf(object));
console.log(JSON.stringify({
  exports: Object.keys(module), Stream: named(client.stream), Rooms: named(client.rooms), KwireClient: named(client),
  Events: named(client.events),
}));
"""


def test_the_python_client_needs_aiohttp_and_nothing_of_the_server() -> None:
    nodes = [node for path in CLIENT.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    foreign = {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in foreign if name != "kwire.client" and not name.startswith("kwire.client.")} == {"aiohttp"}


def test_the_module_loads_nothing() -> None:
    assert not re.search(r"^\s*import\b|\brequire\(", MODULE.read_text().partition("*/")[2], re.MULTILINE)


@pytest.mark.needs_node
def test_the_types_name_what_the_module_has() -> None:
    answer = subprocess.run(
        ["node", "--input-type=module", "-e", SHAPE, MODULE.as_uri()],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    shape, text = json.loads(answer.stdout), TYPES.read_text()
    assert sorted(re.findall(r"^export class (\w+)", text, re.MULTILINE)) == sorted(shape.pop("exports"))
    for name, members in shape.items():
        body = text.partition(f" {name} {{\n")[2].partition("\n}")[0]
        declared = set(re.findall(r"^  (\w+)(?:<[^(]*>)?\(", body, re.MULTILINE))
        # Constructors are not declared but for the client, whose own `close` is the one that ends the stream.
        assert declared - {"constructor"} == set(members) - {"constructor"} - (
            {"close"} if name in ("Stream", "Events") else set()
        )
