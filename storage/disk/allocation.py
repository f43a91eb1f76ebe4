"""fallocate(2) without libc's emulation.

If a file system cannot reserve space, ``posix_fallocate`` writes zeros into each block instead. That would overwrite
bytes that another thread writes there meanwhile. On such a file system, :func:`fallocate` raises EOPNOTSUPP.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

_DEFAULT_MODE: Final = 0

_fallocate = ctypes.CDLL(None, use_errno=True).fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def fallocate(fd: int, position: int, size: int) -> None:
    """Reserve zeroed space. Existing bytes are kept. Raises ``OSError``."""
    if _fallocate(fd, _DEFAULT_MODE, position, size):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
