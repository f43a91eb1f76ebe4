"""Two ways to run cases: by chance alone, and by atheris, which keeps what reaches new code and changes it further."""

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

# An endless loop is ended, and its place told, after so long without a look at the clock.
HANG_SECONDS = 120
FAILED = 1
ARTIFACTS = Path(__file__).resolve().parents[2] / "artifacts"
STREAM_KINDS = 96


def spoilt(seed: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """Another case like this one; the kind is kept, and most streams get a size that fits."""
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
    """Run until so many cases, or so much time; how it ended, as an exit code."""
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
    """The same, guided by coverage. Ends the process itself, because atheris never returns."""
    # By name: it is installed only where it is wanted, and has no types.
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
    # libFuzzer counts collections of garbage as leaks to look for, which takes most of the time.
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
    """The seeds as the files that libFuzzer wants; it writes what it finds beside them."""
    folder = _corpus_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number}").write_bytes(seed)
    return folder


def report(case: bytes) -> None:
    """Print what went wrong and keep the case."""
    traceback.print_exc()
    ARTIFACTS.mkdir(exist_ok=True)
    path = ARTIFACTS / f"fuzz-{hashlib.sha256(case).hexdigest()[:12]}.hex"
    path.write_text(case.hex() + "\n", encoding="ascii")
    print(f"the case is in {path.relative_to(ARTIFACTS.parent)}: scripts/fuzz --replay {path.name}", file=sys.stderr)
