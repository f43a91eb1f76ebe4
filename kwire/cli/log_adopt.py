"""kwire log adopt: rebuild the catalogue from partition folders, and accept the loss of partitions."""

import argparse
import asyncio
import logging
import sys
from typing import TextIO

from kwire.broker.adoption import Adoption, Locked, NotPossible, Outcome
from kwire.cli.verbs import reports_failures
from kwire.config import Config, InvalidConfig, load
from storage.errors import StorageError
from storage.files import Files

ADOPTED, UNDECIDED, CANNOT_RUN = 0, 1, 2
# Of each list, at most this many lines are printed.
LINES_SHOWN_MAX = 1000


@reports_failures(NotPossible, StorageError, OSError, InvalidConfig, exit_code=CANNOT_RUN)
def adopt(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="kwire: %(message)s")
    data_dirs = [str(path.absolute()) for path in options.data_dirs]
    for path in options.data_dirs:
        if not path.is_dir():
            raise NotPossible(f"{path} is not a directory")
    config = load(files=options.config, settings=options.set, data_dir=",".join(data_dirs))
    outcome = _adopted(data_dirs, config, options.accept_loss)
    _print(outcome.done, sys.stdout)
    _print(outcome.left, sys.stderr)
    if not outcome.done and not outcome.left:
        print("nothing to do: the catalogue and the folders agree")
    return UNDECIDED if outcome.left else ADOPTED


def _adopted(data_dirs: list[str], config: Config, accepted: list[str]) -> Outcome:
    files = Files()
    locked = Locked(data_dirs, files)
    try:
        return asyncio.run(Adoption(data_dirs, files, config).run(frozenset(accepted)))
    finally:
        locked.release()


def _print(lines: list[str], stream: TextIO) -> None:
    for line in lines[:LINES_SHOWN_MAX]:
        print(line, file=stream)
    if len(lines) > LINES_SHOWN_MAX:
        print(f"and {len(lines) - LINES_SHOWN_MAX} more", file=stream)
