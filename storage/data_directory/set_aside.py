"""Setting files and folders aside inside a data directory: nothing is deleted, and nothing of it is served again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from storage.errors import disk_errors
from storage.files import Files

SET_ASIDE_PREFIX: Final = "set-aside-"


def set_aside(data_dir: str, names: Sequence[str], stamp: str, files: Files) -> str:
    """Move them into ``set-aside-<stamp>`` of the directory, durably, and return its path; raises ``DiskFailure``.

    ``stamp`` must not end in a digit: a folder that ends in ``-<digits>`` is a partition's.
    """
    target = os.path.join(data_dir, SET_ASIDE_PREFIX + stamp)
    with disk_errors(f"set {len(names)} names of {data_dir} aside"):
        files.makedirs(target)
        for name in names:
            files.rename(os.path.join(data_dir, name), os.path.join(target, name))
        files.fsync_dir(target)
        files.fsync_dir(data_dir)
    return target
