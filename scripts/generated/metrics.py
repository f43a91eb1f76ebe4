"""Generates docs/monitoring/metrics.md from the declarations of the metrics in kwire/web."""

import ast
import importlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "kwire" / "web"
# The names of kafka_exporter are described in docs/monitoring/README.md.
LEFT_OUT = {"kafka_exporter.py", "former_names.py"}
TYPES = {"CounterMetricFamily": "counter", "GaugeMetricFamily": "gauge", "HistogramMetricFamily": "histogram"}
# Functions that write a family as text. The name of a counter ends in _total there.
TEXT_FUNCTIONS = {"family_text": "gauge", "counter": "counter"}
PREFIXES = ("kwire_", "process_")

# The sections of the page, by the prefixes of names. A metric belongs to the first section that fits.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Server": ("kwire_build_", "kwire_server_", "kwire_loop_", "kwire_tls_", "process_", "kwire_process_"),
    "HTTP": ("kwire_http_",),
    "Topics": ("kwire_topic_", "kwire_storage_log_size_bytes", "kwire_broker_"),
    "Groups and transactions": ("kwire_group_", "kwire_coordinator_"),
    "Rooms and streams": ("kwire_rooms", "kwire_streams", "kwire_db_"),
    "Bridge": ("kwire_bridge_",),
    "Events and webhooks": ("kwire_event_files_", "kwire_webhooks"),
    "Access": ("kwire_access_", "kwire_key_", "kwire_quota_", "kwire_audit_"),
    "Disk": ("kwire_disk_", "kwire_storage_"),
    "Retention, compaction and scrub": ("kwire_retention_", "kwire_cleaner_", "kwire_scrub_", "kwire_relocations_"),
}

INTRODUCTION = """# Metrics

<!-- written by scripts/generate from the declarations in kwire/web -->

What `GET /metrics` contains. How to use it: [README.md](README.md). Counters start at 0 when the server starts. A
histogram has series with the endings `_bucket`, `_sum` and `_count`.
"""


class MetricFacts(NamedTuple):
    name: str
    type: str
    help: str
    labels: tuple[str, ...]


def render() -> str:
    left = sorted(found())
    lines = [INTRODUCTION.rstrip()]
    for title, prefixes in SECTIONS.items():
        some = [one for one in left if one.name.startswith(prefixes)]
        left = [one for one in left if one not in some]
        lines += ["", f"## {title}", "", "| metric | type | labels | what |", "|---|---|---|---|", *map(_row, some)]
    if left:
        raise ValueError(f"no section of the page has {', '.join(one.name for one in left)}")
    return "\n".join(lines) + "\n"


def found() -> set[MetricFacts]:
    """Return all metrics that are declared in the modules of the HTTP port."""
    return {one for path in sorted(SOURCES.rglob("*.py")) if path.name not in LEFT_OUT for one in _declared_in(path)}


def _row(one: MetricFacts) -> str:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return f"| `{one.name}` | {one.type} | {labels} | {one.help} |"


def _declared_in(path: Path) -> Iterator[MetricFacts]:
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and len(call.args) >= 2:
                    yield from _declared_by(path, tree, function, call)


def _declared_by(path: Path, tree: ast.Module, function: ast.AST, call: ast.Call) -> Iterator[MetricFacts]:
    assert isinstance(call.func, ast.Name)
    kind = TYPES.get(call.func.id) or TEXT_FUNCTIONS.get(call.func.id)
    name = call.args[0].value if isinstance(call.args[0], ast.Constant) else None
    if kind is None or not isinstance(name, str) or not name.startswith(PREFIXES):
        return
    if kind == "counter" and not name.endswith("_total"):
        name += "_total"
    help_text = _value(path, call.args[1])
    given = next((one.value for one in call.keywords if one.arg == "labels"), None)
    labels = _labels(path, tree, call) if given is None else _given_labels(path, function, given)
    yield MetricFacts(name, kind, help_text, labels)


def _given_labels(path: Path, function: ast.AST, given: ast.expr) -> tuple[str, ...]:
    assigned = {
        target.id: one.value
        for one in ast.walk(function)
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    return tuple(_value(path, assigned.get(given.id, given) if isinstance(given, ast.Name) else given))


def _labels(path: Path, tree: ast.Module, call: ast.Call) -> tuple[str, ...]:
    """Return the labels of a family that is written as text: those of the `label_text` that its samples call."""
    if isinstance(call.func, ast.Name) and call.func.id in TYPES:
        return ()
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    called = [one.func.id for one in ast.walk(call) if isinstance(one, ast.Call) and isinstance(one.func, ast.Name)]
    places: list[ast.AST] = [call, *(functions[name] for name in called if name in functions)]
    found = {labels for place in places for labels in _label_calls(place)}
    if not found and not any(isinstance(one, ast.List) for one in call.args):
        found = set(_label_calls(tree))
    if len(found) > 1:
        raise ValueError(f"{path}:{call.lineno}: the labels cannot be told")
    return next(iter(found), ())


def _label_calls(place: ast.AST) -> Iterator[tuple[str, ...]]:
    for one in ast.walk(place):
        if isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "label_text":
            yield tuple(str(keyword.arg) for keyword in one.keywords)


def _value(path: Path, expression: ast.expr) -> Any:
    return eval(compile(ast.Expression(expression), str(path), "eval"), vars(_module(path)))


@cache
def _module(path: Path) -> ModuleType:
    return importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
