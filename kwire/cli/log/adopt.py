"""kwire log adopt: repairs the catalogue of a stopped server from its partition folders.

With --accept-loss, partitions with lost records can be used again.
"""

import argparse
import asyncio
import logging
import sys
from typing import TextIO

from kwire.broker.topics.adoption import Adoption, AdoptionRefused, DirectoryLocks, Outcome
from kwire.cli.framework.errors import CannotRun
from kwire.config import Config, InvalidConfig, load
from storage.disk.files import Files

ADOPTED, UNDECIDED = 0, 1
# The maximum number of lines that are printed of each list.
LINES_SHOWN_MAX = 1000


def adopt(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="kwire: %(message)s")
    data_dirs = [str(path.absolute()) for path in options.data_dirs]
    for path in options.data_dirs:
        if not path.is_dir():
            raise CannotRun(f"{path} is not a directory")
    try:
        config = load(files=options.config, settings=options.set, data_dir=",".join(data_dirs))
        outcome = _adopted(data_dirs, config, options.accept_loss)
    except (AdoptionRefused, InvalidConfig) as error:
        raise CannotRun(str(error)) from None
    _print(outcome.done, sys.stdout)
    _print(outcome.left, sys.stderr)
    if not outcome.done and not outcome.left:
        print("nothing to do: the catalogue and the folders agree")
    return UNDECIDED if outcome.left else ADOPTED


def _adopted(data_dirs: list[str], config: Config, accepted: list[str]) -> Outcome:
    files = Files()
    locked = DirectoryLocks(data_dirs, files)
    adoption = Adoption(data_dirs, files, config)
    try:
        return asyncio.run(adoption.run(frozenset(accepted)))
    except Exception:
        _print(adoption.outcome.done, sys.stdout)
        raise
    finally:
        locked.release()


def _print(lines: list[str], stream: TextIO) -> None:
    for line in lines[:LINES_SHOWN_MAX]:
        print(line, file=stream)
    if len(lines) > LINES_SHOWN_MAX:
        print(f"and {len(lines) - LINES_SHOWN_MAX} more", file=stream)
