"""The house is tidy: style that a machine can see is a test, so nobody has to say it in a review."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import kwire

# One process reads the modules.
pytestmark = pytest.mark.xdist_group("house")

ROOT = Path(__file__).resolve().parents[1]
SOURCE_PACKAGES = ("kwire", "storage")

TOP_LEVEL = {
    *("kwire", "storage", "tests", "compat", "scripts", "docs", ".ci"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "pyproject.toml", "constraints.txt", ".gitignore"),
}

FILE_LINES_MAX = 600
# A longer file needs a reason here.
LONG_FILES: dict[str, str] = {}

# Modules of handlers/ that several APIs share and that have no message of their own.
SHARED_BY_HANDLERS = {"__init__", "shared"}

# What runs code in another thread of this process.
THREAD_CALLS = {"Thread", "Timer", "ThreadPoolExecutor", "run_in_executor", "set_default_executor", "to_thread"}
# Work that touches the disk goes through the lanes of kwire/concurrency/disk_lanes.py. Threads for other work are
# named here.
THREADS_BESIDE_THE_LANES = {
    "kwire/concurrency/disk_lanes.py": "the lanes",
    "kwire/access/users/passwords.py": "computation: passwords are hashed",
    "kwire/broker/admin/config_changes.py": "computation: regular expressions of clients are compiled",
    "kwire/streams/event_store/schemas/payload_checks.py": "computation: a batch is decompressed",
    "kwire/concurrency/worker.py": "in the worker process: it takes calls while one runs",
    "kwire/concurrency/worker_process.py": "talks to the worker process over pipes",
    "kwire/handlers/delete_acls.py": "computation: a large answer is encoded",
    "kwire/handlers/describe_log_dirs.py": "computation: a large answer is encoded",
    "kwire/node.py": "modules are imported while Kafka clients are served already",
    "kwire/server/free_memory.py": "computation: malloc_trim",
    "kwire/server/outbound/webhook_sender.py": "DNS look-ups",
    "kwire/cli/event/prefetch.py": "not in the server",
    "kwire/cli/framework/reader_watch.py": "not in the server",
    "kwire/cli/kafka/group_member.py": "not in the server",
    "kwire/cli/log/processes.py": "not in the server",
    "kwire/cli/serve/foreground.py": "ends a stop that takes too long",
    "kwire/client/sync/loop_thread.py": "not in the server",
    "kwire/pipeline/query_runner.py": "not in the server",
    "kwire/pipeline/java/output.py": "not in the server",
    "kwire/pipeline/reports/sender.py": "not in the server",
}

BANNED_SUFFIX = re.compile(r"(Manager|Helper|Helpers|Util|Utils|Impl|Base)$")
# Spelled in pieces, or this file would find itself.
UNFINISHED = re.compile("|".join(rf"\b{word}\b" for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X")))
LEFT_OUT_TEST = re.compile(r"pytest\.(mark\.)?(sk" + r"ip|xf" + r"ail)")
FOREIGN_PLACES = re.compile(
    "|".join(
        re.escape(place)
        for place in (
            *("py" + "pi.org", "python" + "hosted.org", "maven" + ".org", "npm" + "js.org"),
            *("deb.deb" + "ian.org", "proxy.go" + "lang.org", "crates" + ".io"),
            *("/ro" + "ot/", "/ho" + "me/", "/wo" + "rk/", "/tmp/de" + "sign", ".py" + "env"),
        )
    )
)

# Import name to the name it is installed by, where they differ.
INSTALLED_AS = {
    "jsonschema_rs": "jsonschema-rs",
    "kafka": "kafka-python",
    "prometheus_client": "prometheus-client",
    "yaml": "pyyaml",
}


@cache
def project_files() -> tuple[Path, ...]:
    """What is or would be committed, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if listed.returncode == 0:
        names = [Path(name) for name in listed.stdout.split("\0") if name]
        return tuple(sorted(name for name in names if (ROOT / name).is_file()))
    return tuple(sorted(path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file() and not _is_litter(path)))


def _is_litter(path: Path) -> bool:
    """For a folder without git: what .gitignore would leave out."""
    parts = path.relative_to(ROOT).parts
    kept_dots = {".ci", ".gitignore"}
    return any(
        (part.startswith(".") and part not in kept_dots) or part == "__pycache__" or part.endswith(".egg-info")
        for part in parts
    )


def python_files(*folders: str) -> list[Path]:
    return [path for path in project_files() if path.suffix == ".py" and path.parts[0] in folders]


def text_of(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), str(path))


@pytest.fixture(autouse=True, scope="module")
def _forgotten_trees() -> Iterator[None]:
    """The trees are millions of objects, which would make each garbage collection of later tests take seconds."""
    yield
    tree_of.cache_clear()


def test_only_known_names_stand_at_the_top() -> None:
    assert {path.parts[0] for path in project_files()} <= TOP_LEVEL


def test_files_are_short_enough_to_read() -> None:
    lines = {str(path): text_of(path).count("\n") for path in python_files(*SOURCE_PACKAGES, "tests", "scripts")}
    too_long = {name for name, count in lines.items() if count > FILE_LINES_MAX}
    assert too_long == set(LONG_FILES), "a file is too long, or an excuse is no longer needed"
    assert all(LONG_FILES.values())


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path) for path in python_files(*SOURCE_PACKAGES, "tests", "scripts") if not ast.get_docstring(tree_of(path))
    ]
    assert silent == []


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in python_files(*SOURCE_PACKAGES)}
    assert [str(folder) for folder in folders if folder / "__init__.py" not in project_files()] == []


def test_classes_are_nouns_of_the_subject() -> None:
    named = [
        f"{path}: {node.name}"
        for path in python_files(*SOURCE_PACKAGES, "tests", "scripts")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef) and BANNED_SUFFIX.search(node.name)
    ]
    assert named == []


def test_threads_are_those_of_the_disk_lanes() -> None:
    """By the name of what is called or inherited from; a new use needs a lane, or a reason above."""
    found = {str(path) for path in python_files(*SOURCE_PACKAGES) if THREAD_CALLS & _called(tree_of(path))}
    assert found == set(THREADS_BESIDE_THE_LANES)


def _called(tree: ast.Module) -> set[str]:
    used = [
        expression
        for node in ast.walk(tree)
        for expression in (
            [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else ()
        )
    ]
    return {one.attr if isinstance(one, ast.Attribute) else getattr(one, "id", "") for one in used}


def test_nothing_is_left_unfinished_or_left_out() -> None:
    found = [
        f"{path}:{number}"
        for path in python_files(*SOURCE_PACKAGES, "tests", "scripts", "compat")
        for number, line in enumerate(text_of(path).splitlines(), start=1)
        if UNFINISHED.search(line) or LEFT_OUT_TEST.search(line)
    ]
    assert found == []


def test_no_file_names_a_registry_or_a_place_on_one_machine() -> None:
    found = []
    for path in project_files():
        try:
            text = text_of(path)
        except UnicodeDecodeError:
            continue
        found += [f"{path}: {match[0]}" for match in FOREIGN_PLACES.finditer(text)]
    assert found == []


def test_every_handler_has_a_message_of_the_same_name() -> None:
    """Not the other way round: all of Kafka's APIs are declared, those with a handler are served."""
    handlers, messages = _stems("kwire/handlers"), _stems("kwire/wire/messages")
    assert handlers - SHARED_BY_HANDLERS - messages == set()


def test_every_handler_has_a_test_of_the_same_name() -> None:
    tests = {stem.removeprefix("test_") for stem in _stems("tests/handlers")}
    if tests:
        assert _stems("kwire/handlers") - SHARED_BY_HANDLERS - tests == set()


def _stems(folder: str) -> set[str]:
    """The names of the modules and packages in a folder."""
    python = [path for path in project_files() if path.suffix == ".py"]
    packages = {path.parent.name for path in python if path.parent.parent == Path(folder)}
    return packages | {path.stem for path in python if path.parent == Path(folder)}


def test_scripts_are_one_word_and_can_be_run() -> None:
    scripts = [path for path in project_files() if path.parent in (Path("scripts"), Path(".ci"))]
    assert scripts
    for path in scripts:
        assert re.fullmatch(r"[a-z]+", path.name), path
        assert os.access(ROOT / path, os.X_OK), f"{path} is not executable"
        assert text_of(path).startswith("#!/usr/bin/env bash\n# "), f"{path} does not begin by saying what it does"
        assert "\nset -euo pipefail\n" in text_of(path), path


def test_every_third_party_import_is_declared() -> None:
    project = pyproject()["project"]
    declared = {_requirement_name(entry) for entry in project["dependencies"]}
    extras = project["optional-dependencies"]
    # Only the pipeline needs Spark, only an example needs matplotlib, only Parquet files need pyarrow, and only pytest
    # imports the plugin.
    allowed = {
        Path("kwire", "cli", "example"): declared | {_requirement_name(entry) for entry in extras["plots"]},
        Path("kwire", "cli", "records"): declared | {_requirement_name(entry) for entry in extras["parquet"]},
        Path("kwire", "pipeline"): declared | {_requirement_name(entry) for entry in extras["spark"]},
        Path("kwire", "pytest_plugin.py"): declared | {_requirement_name(entry) for entry in extras["test"]},
    }
    undeclared = {
        (name, str(path))
        for path in python_files(*SOURCE_PACKAGES)
        for name in _imported(tree_of(path))
        if name not in sys.stdlib_module_names and name not in SOURCE_PACKAGES
        if INSTALLED_AS.get(name, name)
        not in next((names for place, names in allowed.items() if path.is_relative_to(place)), declared)
    }
    assert undeclared == set()


def test_every_dependency_is_pinned_by_name_and_version_only() -> None:
    pins = [line for line in text_of(Path("constraints.txt")).splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", pin) for pin in pins)
    project = pyproject()["project"]
    extras = [entry for extra in project["optional-dependencies"].values() for entry in extra]
    wanted = {_requirement_name(entry) for entry in project["dependencies"] + extras}
    assert wanted <= {_requirement_name(pin) for pin in pins}


def test_the_changelog_knows_the_version() -> None:
    assert f"## {kwire.__version__}" in text_of(Path("CHANGELOG.md"))


@pytest.mark.parametrize("page", [path for path in project_files() if path.suffix == ".md"], ids=str)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", text_of(page))
    local = [
        (ROOT / page.parent / target if target else ROOT / page, anchor)
        for target, anchor in targets
        if "://" not in target
    ]
    assert [str(target) for target, _ in local if not target.exists()] == []
    with_anchor = [(target, anchor) for target, anchor in local if anchor and target.suffix == ".md"]
    assert [f"{target}#{anchor}" for target, anchor in with_anchor if anchor not in anchors_of(target)] == []


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    seen: Counter[str] = Counter()
    anchors = set()
    for heading in headings:
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        anchors.add(f"{anchor}-{seen[anchor]}" if seen[anchor] else anchor)
        seen[anchor] += 1
    return frozenset(anchors)


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads(text_of(Path("pyproject.toml")))


def _requirement_name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower().replace("_", "-")


def _imported(tree: ast.Module) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names.add(node.module.partition(".")[0])
    return names
