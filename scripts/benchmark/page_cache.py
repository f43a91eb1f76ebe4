"""Makes a server's data cold: removes its pages from the page cache, and checks this with some reads.

The server runs meanwhile and may delete a file at any time, so a missing file is not an error.
"""

import errno
import os
import random
from contextlib import suppress
from pathlib import Path

SPOTS = 128  # The number is small, because each read of a cold position makes the kernel read ahead.
LARGE_FILE_BYTES = 1 << 20
BLOCK_BYTES = 512


def drop(directory: Path) -> None:
    """Remove the pages of all files below the directory from the page cache. Dirty pages would stay, so sync first."""
    os.sync()
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError), path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(directory: Path) -> float | None:
    """Return the share of random positions in large files that are in the page cache, or None if it is unknown."""
    large = _large_files(directory)
    if not large:
        return None
    draw = random.Random(0)
    paths = draw.choices(list(large), weights=list(large.values()), k=SPOTS)
    answers = [_is_resident(path, draw.randrange(large[path])) for path in paths]
    known = [answer for answer in answers if answer is not None]
    return sum(known) / len(known) if known else None


def _large_files(directory: Path) -> dict[Path, int]:
    """Return the large files and their allocated sizes. Kafka's index files are sparse, so st_size is not enough."""
    sizes = {}
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            found = path.stat()
            sizes[path] = min(found.st_size, found.st_blocks * BLOCK_BYTES)
    return {path: size for path, size in sizes.items() if size >= LARGE_FILE_BYTES}


def _is_resident(path: Path, position: int) -> bool | None:
    """Return whether the position is in the page cache, or None for a hole, which is never read from the disk."""
    try:
        with path.open("rb", buffering=0) as file:
            if os.lseek(file.fileno(), position, os.SEEK_DATA) != position:
                return None
            return os.preadv(file.fileno(), [bytearray(1)], position, os.RWF_NOWAIT) > 0
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
