"""The log of a partition is private: code outside `broker/partition` cannot import, return, hold or reach one.

The checks go by what a name stands for and by where an attribute leads, not by the text `partition.log`. Each is shown
to fail for a planted use.
"""

import ast
import inspect
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kwire
from kwire.broker.partition import LogMaintenance, Partition
from storage.batch.record_batch import check_batch
from storage.data_directory.directories import LogDirectories
from storage.data_directory.store import LogStore
from storage.log.log import Log
from storage.log.reading import ReadableLog
from tests.support.batches import make_batch
from tests.support.node import QuietNode, in_loop
from tests.support.partition_log import log_of

ROOT = Path(kwire.__file__).parent
PACKAGE = ROOT / "broker" / "partition"
# The logs of replicas, which belong to no Partition of this server.
REPLICAS = ROOT / "cluster" / "segment_files"
# How deep attributes of attributes are followed.
DEPTH_MAX = 4
REFLECTION = {"getattr", "setattr", "hasattr", "delattr", "attrgetter"}


def sources_outside(names: Iterable[str]) -> dict[str, str]:
    """The modules outside the package that contain one of these names, which saves parsing all others."""
    pattern = re.compile("|".join(rf"\b{name}\b" for name in names))
    found = {
        str(path.relative_to(ROOT.parent)): path.read_text(encoding="utf-8")
        for path in sorted(ROOT.rglob("*.py"))
        if not {PACKAGE, REPLICAS} & set(path.parents)
    }
    assert len(found) > 300
    return {path: source for path, source in found.items() if pattern.search(source)}


# --- what stands for a log


def is_log_type(hint: Any) -> bool:
    """Whether an annotation is a class of logs, or contains one (`Log | None`, `list[Log]`)."""
    if inspect.isclass(hint) and issubclass(hint, ReadableLog):
        return True
    # What a callable takes is not what it gives.
    arguments = typing.get_args(hint)[-1:] if typing.get_origin(hint) is Callable else typing.get_args(hint)
    return any(map(is_log_type, arguments))


def returns_log(function: Any) -> bool:
    annotation = getattr(function, "__annotations__", {}).get("return")
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, function.__globals__)
        except NameError:  # only a type checker imports it, and the import test looks at such imports too
            return False
    return is_log_type(annotation)


def methods_that_return_logs(*classes: type) -> set[str]:
    return {
        name
        for owner in classes
        for name, member in inspect.getmembers(owner)
        if not name.startswith("_") and returns_log(member.fget if isinstance(member, property) else member)
    }


def private_names(*classes: type) -> set[str]:
    owners = {owner for one in classes for owner in one.__mro__ if owner is not object}
    return {name for owner in owners for name in vars(owner) if name.startswith("_") and not name.startswith("__")}


# --- source outside the package


def imports_of_logs(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == Log.__module__:
                    yield f"line {node.lineno}: imports the module of Log"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "storage":
            for alias in node.names:
                found = imported(node.module or "", alias.name)
                is_log = is_log_type(found) or returns_log(found)
                if is_log or (isinstance(found, ModuleType) and found.__name__ == Log.__module__):
                    yield f"line {node.lineno}: imports {alias.name}"


def imported(module_name: str, name: str) -> Any:
    module = import_module(module_name)
    return getattr(module, name) if hasattr(module, name) else import_module(f"{module_name}.{name}")


def uses_of_private_names(source: str, names: set[str]) -> Iterator[str]:
    """Private attributes of something other than `self`, also by reflection."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in names:
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and _called(node) in REFLECTION:
            texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if names & {part for text in texts for part in text.split(".")}:
                yield f"line {node.lineno}: {ast.unparse(node)}"


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def calls_that_open_logs(source: str, names: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in names:
            yield f"line {node.lineno}: {ast.unparse(node)}"


def assignments_of_high_watermark(source: str) -> set[str]:
    """The functions in which some object's `high_watermark` is assigned."""
    found = set()
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and node.attr == "high_watermark"
                    and isinstance(node.ctx, ast.Store)
                ):
                    found.add(function.name)
    return found


PRIVATE_NAMES = private_names(Partition, LogMaintenance)
OPENING_NAMES = methods_that_return_logs(LogStore, LogDirectories)


def test_no_module_outside_imports_a_log_or_a_function_that_returns_one() -> None:
    found = {path: list(imports_of_logs(source)) for path, source in sources_outside(["storage"]).items()}
    assert {path: uses for path, uses in found.items() if uses} == {}


def test_no_module_outside_uses_a_private_attribute_of_a_partition() -> None:
    assert {"_log", "_open_now", "_open_log"} <= PRIVATE_NAMES
    sources = sources_outside(PRIVATE_NAMES)
    found = {path: list(uses_of_private_names(source, PRIVATE_NAMES)) for path, source in sources.items()}
    assert {path: uses for path, uses in found.items() if uses} == {}


def test_no_module_outside_opens_a_log_in_the_store() -> None:
    assert "open_log" in OPENING_NAMES
    sources = sources_outside(OPENING_NAMES)
    found = {path: list(calls_that_open_logs(source, OPENING_NAMES)) for path, source in sources.items()}
    assert {path: uses for path, uses in found.items() if uses} == {}


def test_one_place_raises_the_high_watermark() -> None:
    inside = {
        path.stem: assignments_of_high_watermark(path.read_text(encoding="utf-8")) for path in PACKAGE.glob("*.py")
    }
    assert {name: functions for name, functions in inside.items() if functions} == {
        "reserved_offsets": {"__init__"},
        "partition": {"advance"},
    }


@pytest.mark.parametrize(
    "planted",
    [
        "from storage.log.log import Appended, Log",
        "from storage.relocation.relocation import MovedLog as Elsewhere",
        "from storage.log.durability import DurableLog",
        "import storage.log.log",
        "import storage.log.log as stored",
        "from storage.log import log as stored",
        "def peek():\n    from storage.recovery.crash_recovery import open_log",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from storage.log.log import Log",
    ],
)
def test_planted_imports_are_found(planted: str) -> None:
    assert list(imports_of_logs(planted))


@pytest.mark.parametrize(
    "planted",
    [
        "end = partition._log.log_end_offset",
        "room.partition._open_now()",
        "handle = topic.partitions[0].maintenance()._log",
        'log = getattr(partition, "_log")',
        'ends = map(attrgetter("_log.log_end_offset"), partitions)',
    ],
)
def test_planted_private_attributes_are_found(planted: str) -> None:
    assert list(uses_of_private_names(planted, PRIVATE_NAMES))


def test_planted_openings_and_assignments_are_found() -> None:
    assert list(calls_that_open_logs("opened = self._store.open_log(name, 0, topic_id, settings)", OPENING_NAMES))
    assert assignments_of_high_watermark("def show(partition):\n    partition.high_watermark = 3") == {"show"}


# --- objects at run time


def logs_within(root: Any) -> Iterator[str]:
    """The public attributes, and attributes of those, that hold or return a log; methods go by their annotations."""
    seen: dict[int, Any] = {}
    level = [("", root)]
    for _ in range(DEPTH_MAX):
        following = []
        for path, owner in level:
            if id(owner) in seen:
                continue
            seen[id(owner)] = owner
            for name, value in members(owner):
                if isinstance(value, ReadableLog) or returns_log(value):
                    yield f"{path}.{name}"
                elif type(value).__module__.startswith(("kwire.", "storage.")):
                    following.append((f"{path}.{name}", value))
        level = following


def members(owner: Any) -> Iterator[tuple[str, Any]]:
    for name in dir(owner):
        if not name.startswith("_"):
            yield from unpacked(name, getattr(owner, name))


def unpacked(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The value, or what a collection holds."""
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for at, one in enumerate(value):
            yield from unpacked(f"{path}[{at}]", one)
    else:
        yield path, value


@in_loop
async def test_nothing_public_of_an_open_partition_leads_to_its_log(node: QuietNode) -> None:
    partition = await opened_partition(node)
    assert list(logs_within(partition)) == []
    assert list(logs_within(partition.maintenance())) == []


@in_loop
async def test_planted_attributes_are_found(node: QuietNode) -> None:
    partition = await opened_partition(node)

    class ByProperty(LogMaintenance):
        @property
        def opened(self) -> object:
            return self._log

    class ByMethod(LogMaintenance):
        def reopen(self) -> list[Log]:
            return [self._log]

    class Held:
        __module__ = "kwire.planted"

        def __init__(self, log: Log) -> None:
            self.logs = {"first": (log,)}

    class ByAttribute(LogMaintenance):
        held = Held(log_of(partition))

    for leaky, path in ((ByProperty, ".opened"), (ByMethod, ".reopen"), (ByAttribute, ".held.logs[1][0]")):
        assert list(logs_within(leaky(partition, log_of(partition)))) == [path]


async def opened_partition(node: QuietNode) -> Partition:
    partition = await node.create_partition()
    batch = make_batch(1, timestamp_ms=0)
    partition.append(batch, check_batch(batch))
    assert partition.is_open
    return partition
