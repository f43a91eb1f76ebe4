"""The two programs of this family: their command lines, and how long a run takes."""

import re
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from benchmark.cli.options import KCAT
from benchmark.processes import ChildFailed
from benchmark.servers import KWIRE, KWIRE_PROGRAM

RUN_TIMEOUT_SECONDS = 300


@dataclass(frozen=True)
class Run:
    """The duration of a program from its start to its end, and the CPU time that it used."""

    seconds: float
    cpu_seconds: float


def find_kcat() -> str:
    path = shutil.which("kcat")
    if path is None:
        raise ChildFailed("kcat is not installed: apt-get install kcat")
    return path


def kcat_facts(kcat: str) -> dict[str, object]:
    text = subprocess.run([kcat, "-V"], capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=True).stdout
    version = re.search(r"Version (\S+).*?(librdkafka \S+)", text)
    return {"beside": f"kcat {version[1]}" if version else "kcat", "runtime": version[2] if version else "librdkafka"}


def produce_command(program: str, kcat: str, bootstrap: str, topic: str, file: Path) -> list[str]:
    if program == KCAT:
        return [kcat, "-P", "-b", bootstrap, "-t", topic, "-l", str(file), "-X", "enable.idempotence=true"]
    return [str(KWIRE_PROGRAM), "topic", "produce", topic, "--file", str(file), "--bootstrap-server", bootstrap]


def consume_command(program: str, kcat: str, bootstrap: str, topic: str) -> list[str]:
    if program == KCAT:
        return [kcat, "-C", "-b", bootstrap, "-t", topic, "-e", "-q"]
    return [str(KWIRE_PROGRAM), "topic", "consume", topic, "--until", "end", "--bootstrap-server", bootstrap]


def help_command(program: str, kcat: str) -> list[str]:
    return [kcat, "-h"] if program == KCAT else [str(KWIRE_PROGRAM), "--help"]


def list_command(program: str, kcat: str, bootstrap: str) -> list[str]:
    if program == KCAT:
        return [kcat, "-L", "-b", bootstrap]
    return [str(KWIRE_PROGRAM), "topic", "list", "--bootstrap-server", bootstrap]


def run(argv: list[str], *, codes: tuple[int, ...] = (0,)) -> Run:
    """Run a program with its output to /dev/null. Raises ChildFailed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=RUN_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ChildFailed(f"{argv[0]}: not finished after {RUN_TIMEOUT_SECONDS} s") from None
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in codes:
        raise ChildFailed(f"{' '.join(argv[:3])}: exit code {done.returncode}\n{done.stderr.decode(errors='replace')}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(seconds, cpu)


PROGRAMS = (KCAT, KWIRE)
