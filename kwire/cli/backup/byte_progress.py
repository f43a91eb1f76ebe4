"""The progress of a verb that copies or reads the files of a backup."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from kwire.cli.backup.format import OnBytes
from kwire.cli.framework.progress import progress_bar


@contextmanager
def byte_progress(what: str, total_bytes: int) -> Iterator[OnBytes]:
    """Show a bar on terminals. The function that is yielded adds a number of bytes to it."""
    done_bytes = 0
    with closing(progress_bar(what, total_bytes)) as bar:

        def add(size_bytes: int) -> None:
            nonlocal done_bytes
            done_bytes += size_bytes
            bar.show(done_bytes)

        yield add
