"""scripts/fuzz: parses the command line and runs the selected target with the selected engine."""

import argparse
import secrets
import sys
from pathlib import Path

from fuzzing.engine import ARTIFACTS, report, run_by_atheris, run_by_chance, spoilt
from fuzzing.measures import Measures

CASES = 1_000_000
NODE_CASES = 50_000
NO_LIMIT_S = 10.0**9


def main() -> int:
    options = _options()
    if options.capture:
        from fuzzing.capture import capture

        return capture()
    if options.node:
        return _node(options)
    if options.engine == "atheris":
        from fuzzing.instrumented import load

        load()
    return _wire(options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description="Feed hostile input to the parsers, or to a node."
    )
    parser.add_argument("--cases", metavar="N", type=int, help=f"number ({CASES:,}; with --node {NODE_CASES:,})")
    parser.add_argument("--seconds", metavar="S", type=float, default=NO_LIMIT_S, help="stop after this time")
    parser.add_argument("--seed", metavar="NUMBER", type=int, default=None, help="random seed, to repeat a run")
    parser.add_argument("--engine", choices=["atheris", "chance"], default="atheris", help="coverage-guided, or random")
    parser.add_argument("--node", action="store_true", help="send random cases to a node, with its handlers")
    parser.add_argument("--replay", metavar="FILE", type=Path, help="run a failed case again")
    parser.add_argument("--capture", action="store_true", help="record the corpus again, from stock clients")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = secrets.randbits(31)
    return options


def _replayed(path: Path) -> bytes:
    return bytes.fromhex((path if path.exists() else ARTIFACTS / path).read_text(encoding="ascii"))


def _wire(options: argparse.Namespace) -> int:
    from fuzzing import wire_target
    from fuzzing.seeds import wire_seeds

    wire_target.warm_up()
    if options.replay is not None:
        return _once(wire_target.run, _replayed(options.replay))
    seeds = wire_seeds()
    for seed in seeds:
        # This run generates all decoders and encoders, so that the measurement does not include their generation.
        wire_target.run(seed)
    cases = options.cases if options.cases is not None else CASES
    print(f"{len(seeds)} seeds, {cases:,} cases, engine {options.engine}, --seed {options.seed}", flush=True)
    measures = Measures("wire")
    limits = (cases, options.seconds, options.seed)
    if options.engine == "atheris":
        return run_by_atheris(wire_target.run, seeds, measures, *limits)
    code = run_by_chance(wire_target.run, lambda c: spoilt(c.choice(seeds), c, seeds), measures, *limits)
    print(measures.text())
    return code


def _node(options: argparse.Namespace) -> int:
    from fuzzing.node_target import NodeTarget

    target = NodeTarget()
    try:
        if options.replay is not None:
            return _once(target.run, _replayed(options.replay))
        cases = options.cases if options.cases is not None else NODE_CASES
        print(f"{cases:,} cases on a node, --seed {options.seed}", flush=True)
        target.warm_up()
        measures = Measures("node")
        code = run_by_chance(target.run, target.spoil, measures, cases, options.seconds, options.seed)
        print(measures.text())
        print(target.text())
        return code
    finally:
        target.close()


def _once(run: object, case: bytes) -> int:
    assert callable(run)
    try:
        run(case)
    except Exception:
        report(case)
        return 1
    print("the case passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
