"""What is built with Go: the NATS server that kwire is measured beside, and the program that loads both.

Both are built once, into the user's cache directory. The server is a Go module of a fixed version; the versions of
what the load program is made of are in its go.mod.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmark.machine import output_of
from benchmark.processes import ChildFailed, run

NATS_MODULE = "github.com/nats-io/nats-server/v2"
NATS_VERSION = "v2.15.2"
LOAD_SOURCES = Path(__file__).parent / "load"
BUILD_TIMEOUT_SECONDS = 900
DIGEST_CHARACTERS = 12


@dataclass(frozen=True)
class Programs:
    """What the works are given."""

    load: Path

    def facts(self) -> dict[str, object]:
        return {"beside": f"nats-server {NATS_VERSION}", "runtime": output_of(["go", "version"])}


def build_programs() -> Programs:
    return Programs(build_load())


def build_nats_server() -> Path:
    """The first call takes a minute or two and needs the network."""
    home = _cache() / f"nats-server-{NATS_VERSION}"
    install = ["go", "install", f"{NATS_MODULE}@{NATS_VERSION}"]
    return _built(home, "nats-server", lambda into: ["env", f"GOBIN={into}", *install])


def build_load() -> Path:
    sources = sorted(path for path in LOAD_SOURCES.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    digest = hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in sources)).hexdigest()
    home = _cache() / f"rooms-load-{digest[:DIGEST_CHARACTERS]}"
    return _built(home, "load", lambda into: ["go", "build", "-C", str(LOAD_SOURCES), "-o", str(into / "load"), "."])


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kwire"


def _built(home: Path, name: str, argv_for: Callable[[Path], list[str]]) -> Path:
    """The directory appears by one rename, so its existence is the proof that it is complete."""
    if not (home / name).exists():
        if shutil.which("go") is None:
            raise ChildFailed("Go is missing; install Go 1.21 or newer, then run this again")
        partial = home.with_name(f"{home.name}.partial-{os.getpid()}")
        partial.mkdir(parents=True)
        try:
            run(f"building {name}", argv_for(partial), BUILD_TIMEOUT_SECONDS)
            if not home.exists():
                partial.rename(home)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return home / name
