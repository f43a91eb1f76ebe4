"""The two engines: random mutation, and atheris, which also mutates cases that reached new code."""

import faulthandler
import hashlib
import importlib
import os
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fuzzing.measures import LOOK_CASES, Measures
from fuzzing.mutation import mutated, resized

# If LOOK_CASES cases take longer than this, the process prints its traceback and exits. It may be in an endless loop.
HANG_SECONDS = 120
FAILED = 1
ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
STREAM_KINDS = 96


def spoilt(seed: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Return a mutation of the seed. The first byte (the kind) is kept. Most streams get a correct size field."""
    body = mutated(seed[1:], chance, others)
    if seed[:1] < bytes((STREAM_KINDS,)) and chance.random() < 0.8:
        body = resized(body)
    return seed[:1] + body


def run_by_chance(
    run: Callable[[bytes], None],
    spoil: Callable[[random.Random], bytes],
    measures: Measures,
    cases: int,
    seconds: float,
    seed: int,
) -> int:
    """Run random cases until `cases` or `seconds` is reached. Return the exit code."""
    chance = random.Random(seed)
    while measures.cases < cases and measures.seconds < seconds:
        if measures.cases % LOOK_CASES == 0:
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        case = spoil(chance)
        try:
            began = measures.begin()
            run(case)
            measures.end(began, case)
        except Exception:
            report(case)
            return FAILED
    faulthandler.cancel_dump_traceback_later()
    return 0


def run_by_atheris(
    run: Callable[[bytes], None], seeds: Sequence[bytes], measures: Measures, cases: int, seconds: float, seed: int
) -> int:
    """Run cases guided by coverage, with the same limits. The function exits the process: atheris never returns."""
    # atheris is imported by name, because it is an optional package without type hints.
    atheris: Any = importlib.import_module("atheris")

    chance = random.Random(seed)

    def one(data: bytes) -> None:
        try:
            began = measures.begin()
            run(data)
            measures.end(began, data)
        except Exception:
            report(data)
            _leave(FAILED)
        if measures.cases >= cases or measures.seconds >= seconds:
            print(measures.text())
            _leave(0)

    def mutate(data: bytes, size_max: int, number: int) -> bytes:
        if chance.random() < 0.3:
            return bytes(atheris.Mutate(data, size_max))
        return spoilt(data or b"\x00", chance, seeds)[:size_max]

    folder = _folder_of(seeds)
    options = [f"-seed={seed % 2**31 or 1}", f"-timeout={HANG_SECONDS}", "-max_len=65536", "-verbosity=0"]
    # libFuzzer would take garbage collections for leaks, and its search for leaks would take most of the time.
    options += ["-detect_leaks=0", "-print_final_stats=0", f"-artifact_prefix={ARTIFACTS}/fuzz-"]
    atheris.Setup([sys.argv[0], *options, str(folder)], one, custom_mutator=mutate)
    atheris.Fuzz()
    return FAILED  # never reached


def _leave(code: int) -> None:
    shutil.rmtree(_corpus_folder(), ignore_errors=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _corpus_folder() -> Path:
    return ARTIFACTS / f"fuzz-corpus-{os.getpid()}"


def _folder_of(seeds: Sequence[bytes]) -> Path:
    """Write the seeds to files for libFuzzer, and return the folder. libFuzzer adds the cases that it finds."""
    folder = _corpus_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    return folder


def report(case: bytes) -> None:
    """Print the traceback, and write the case to a file."""
    traceback.print_exc()
    ARTIFACTS.mkdir(exist_ok=True)
    path = ARTIFACTS / f"fuzz-{hashlib.sha256(case).hexdigest()[:12]}.hex"
    path.write_text(case.hex() + "\n", encoding="ascii")
    print(f"the case is in {path.relative_to(ARTIFACTS.parent)}: scripts/fuzz --replay {path.name}", file=sys.stderr)
