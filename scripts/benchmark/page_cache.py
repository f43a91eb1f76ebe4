"""Making a server's data cold: its pages leave the page cache, and a few reads prove it.

The server goes on meanwhile and may delete a file at any moment, so a file that is gone is no error here.
"""

import errno
import os
import random
from contextlib import suppress
from pathlib import Path

SPOTS = 128  # Each probe of a cold spot makes the kernel read ahead a little, so there are few.
LARGE_FILE_BYTES = 1 << 20
BLOCK_BYTES = 512


def drop(directory: Path) -> None:
    """Ask the kernel to forget the pages of every file below; dirty pages would stay, hence the sync."""
    os.sync()
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError), path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def resident_share(directory: Path) -> float | None:
    """The share of random spots in the large files that are read without waiting; None where that cannot be asked."""
    large = _large_files(directory)
    if not large:
        return None
    draw = random.Random(0)
    paths = draw.choices(list(large), weights=list(large.values()), k=SPOTS)
    answers = [_is_resident(path, draw.randrange(large[path])) for path in paths]
    known = [answer for answer in answers if answer is not None]
    return sum(known) / len(known) if known else None


def _large_files(directory: Path) -> dict[Path, int]:
    """Kafka's index files are long and nearly empty: what counts is the space that is really taken."""
    sizes = {}
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            found = path.stat()
            sizes[path] = min(found.st_size, found.st_blocks * BLOCK_BYTES)
    return {path: size for path, size in sizes.items() if size >= LARGE_FILE_BYTES}


def _is_resident(path: Path, position: int) -> bool | None:
    """None for a spot without data: space reserved ahead reads as zeros at once, cached or not."""
    try:
        with path.open("rb", buffering=0) as file:
            if os.lseek(file.fileno(), position, os.SEEK_DATA) != position:
                return None
            return os.preadv(file.fileno(), [bytearray(1)], position, os.RWF_NOWAIT) > 0
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
