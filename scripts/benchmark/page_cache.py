"""Making a server's data cold: its pages leave the page cache, and a few reads prove it."""

import errno
import os
import random
from collections.abc import Iterator
from pathlib import Path

SPOTS = 128  # Each probe of a cold spot makes the kernel read ahead a little, so there are few.
LARGE_FILE_BYTES = 1 << 20
BLOCK_BYTES = 512


def drop(directory: Path) -> None:
    """Ask the kernel to forget the pages of every file below; dirty pages would stay, hence the sync."""
    os.sync()
    for path in _files(directory):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def resident_share(directory: Path) -> float | None:
    """The share of random spots in the large files that are read without waiting; None where that cannot be asked."""
    # Index files are large and nearly empty: what counts is the space that is really taken.
    taken = {path: path.stat().st_blocks * BLOCK_BYTES for path in _files(directory)}
    large = {path: size for path, size in taken.items() if size >= LARGE_FILE_BYTES}
    if not large:
        return None
    draw = random.Random(0)
    paths = draw.choices(list(large), weights=list(large.values()), k=SPOTS)
    answers = [_is_resident(path, draw.randrange(min(path.stat().st_size, large[path]))) for path in paths]
    known = [answer for answer in answers if answer is not None]
    return sum(known) / len(known) if known else None


def _is_resident(path: Path, position: int) -> bool | None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.preadv(descriptor, [bytearray(1)], position, os.RWF_NOWAIT) > 0
    except OSError as error:
        return False if error.errno == errno.EAGAIN else None
    finally:
        os.close(descriptor)


def _files(directory: Path) -> Iterator[Path]:
    return (path for path in directory.rglob("*") if path.is_file() and not path.is_symlink())
