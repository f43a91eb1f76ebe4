"""The facts that are needed to interpret the figures: the machine, and the versions of all programs."""

import datetime
import importlib.metadata
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from benchmark.processes import ChildFailed, run
from benchmark.servers import REPOSITORY

VERSION_TIMEOUT_SECONDS = 30


def facts(directory: Path, beside: Mapping[str, object]) -> dict[str, object]:
    """Return the facts. `beside` has those of the server that kwire is compared with."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count(),
        "processor": _first_value(Path("/proc/cpuinfo"), "model name"),
        "memory": _first_value(Path("/proc/meminfo"), "MemTotal"),
        "load_before": os.getloadavg()[0],
        "kernel": platform.release(),
        "file_system": output_of(["stat", "--file-system", "--format=%T", str(directory)]),
        "python": platform.python_version(),
        **beside,
        "kwire": _kwire_version(),
        "commit": output_of(["git", "-C", str(REPOSITORY), "rev-parse", "--short", "HEAD"]),
    }


def kafka_facts(libs: Path) -> dict[str, object]:
    java = output_of(["java", "--version"]).partition("\n")[0]
    return {"beside": f"Apache Kafka {_kafka_version(libs)}", "runtime": java}


def baseline_facts(checkout: Path) -> dict[str, object]:
    commit = output_of(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]).strip()
    return {"beside": f"baseline {commit}", "runtime": output_of(["java", "--version"]).partition("\n")[0]}


def summary(machine: dict[str, object]) -> str:
    versions = f"{machine['beside']}, kwire {machine['kwire']} ({machine['commit']})"
    platforms = f"Linux {machine['kernel']}, Python {machine['python']}, {machine['runtime']}"
    return f"{versions}; {machine['cores']} cores, {platforms}"


def _first_value(path: Path, key: str) -> str:
    for line in path.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "unknown"


def _kafka_version(libs: Path) -> str:
    names = [path.stem.rpartition("-")[2] for path in libs.glob("kafka-tools-[0-9]*.jar")]
    return names[0] if names else "unknown"


def _kwire_version() -> str:
    try:
        return importlib.metadata.version("kwire")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def output_of(argv: list[str]) -> str:
    try:
        return run(argv[0], argv, VERSION_TIMEOUT_SECONDS).strip()
    except (ChildFailed, OSError):
        return "unknown"
