"""Sets files and folders aside: moves them to a folder of the data directory that is kept and never served."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from storage.disk.files import Files
from storage.errors import disk_errors

SET_ASIDE_PREFIX: Final = "set-aside-"


def set_aside(data_dir: str, names: Sequence[str], stamp: str, files: Files) -> str:
    """Move ``names`` durably into the folder ``set-aside-<stamp>``. Returns that folder's path. Raises ``DiskFailure``.

    ``stamp`` must not end in a digit: a folder whose name ends in ``-<digits>`` is a partition folder.
    """
    target = os.path.join(data_dir, SET_ASIDE_PREFIX + stamp)
    with disk_errors(f"set {len(names)} files or folders of {data_dir} aside"):
        files.makedirs(target)
        for name in names:
            files.rename(os.path.join(data_dir, name), os.path.join(target, name))
        files.fsync_dir(target)
        files.fsync_dir(data_dir)
    return target
