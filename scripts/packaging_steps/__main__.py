"""scripts/package: build and try."""

import argparse
import sys
import tempfile
from pathlib import Path

from packaging_steps.build import ROOT, build
from packaging_steps.requirements import lowest_versions
from packaging_steps.trial import check_content, try_wheel


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/package", description="Build the wheel and the sdist, and try them.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist")
    parser.add_argument("--no-trial", action="store_true", help="build only")
    parser.add_argument("--lowest", action="store_true", help="try the lowest versions of the dependencies, too")
    parser.add_argument("--python", action="append", default=[], help="try another interpreter, too; repeatable")
    options = parser.parse_args()
    sdist, wheel = build(options.output.resolve())
    check_content(wheel)
    print(f"{sdist.name}: {sdist.stat().st_size:,} bytes\n{wheel.name}: {wheel.stat().st_size:,} bytes", flush=True)
    if options.no_trial:
        return 0
    for python in (None, *options.python):
        with tempfile.TemporaryDirectory(prefix="kwire-trial-") as folder:
            print(f"an empty environment{'' if python is None else ' of ' + python}", flush=True)
            try_wheel(wheel, Path(folder), python=python)
    if options.lowest:
        with tempfile.TemporaryDirectory(prefix="kwire-trial-") as folder:
            versions = lowest_versions()
            print(f"an empty environment with the lowest versions: {', '.join(versions)}", flush=True)
            try_wheel(wheel, Path(folder), lowest=versions)
    return 0


if __name__ == "__main__":
    sys.exit(main())
