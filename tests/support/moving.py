"""Two data directories on a simulated disk and one log that moves between them, step by step."""

from storage.data_directory.directories import LogDirectories
from storage.disk.files import Files
from storage.log.log import Log
from storage.log.settings import LogSettings
from storage.relocation.relocation import LogMove, can_switch
from tests.support.batches import append, make_batch, read_all, run_now
from tests.support.simulated_disk import SimulatedDisk, SimulatedFiles

ID = bytes(range(16))
FOLDER = "t-0"
# A few batches fill a segment.
SETTINGS = LogSettings(segment_bytes=400)


class Machine(SimulatedFiles):
    """Two directories on one disk: each has a lock of its own."""

    def lock(self, path: str) -> int | None:
        return self.open_write(path)


def start(files: Files, *directories: str) -> LogDirectories:
    made = LogDirectories(directories or ("/a", "/b"), files, run_now)
    made.lock()
    return made


def open_log(directories: LogDirectories, settings: LogSettings = SETTINGS) -> Log:
    return directories.open_log("t", 0, ID, settings)


def put(log: Log, number: int) -> None:
    append(log, make_batch(value=b"%06d" % number, producer_id=7, producer_epoch=0, base_sequence=number))


def values(log: Log) -> list[int]:
    """One record per batch: its value lies before the count of its headers, which is zero."""
    return [int(batch[-7:-1]) for batch in read_all(log)]


def copy_all(move: LogMove, log: Log) -> None:
    for job in move.plan(log).jobs():
        job()


def switch(move: LogMove, log: Log) -> Log:
    assert can_switch(log)
    rest = move.plan(log)
    assert rest.is_small()
    return move.switch(log, rest)


def settle(move: LogMove) -> None:
    assert move.commit is not None
    move.commit.run()


def move_whole(directories: LogDirectories, log: Log, data_dir: str = "/b") -> Log:
    move = directories.begin_move(FOLDER, ID, data_dir)
    move.prepare()
    copy_all(move, log)
    moved = switch(move, log)
    settle(move)
    move.close_old()
    move.remove_old()
    return moved


def names(disk: SimulatedDisk, path: str) -> set[str]:
    return set(disk.folder(path).names)
