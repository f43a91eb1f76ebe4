"""Every kind of file in a data directory, damaged in every way: nothing is lost in silence, and there is no traceback.

What has to come of each cell is in tests/fault_matrix.toml, from which docs/on-disk.md gets its table. The default
effort damages files that have nothing to do with each other together, and takes those of the node after one of the two
ways to stop each; `full` takes all cells.
"""

import re
import shutil
import urllib.request
from pathlib import Path

import pytest

from kwire.cli import main
from tests.support.clients_raw import CORRUPT_MESSAGE, RawConnection, produce_request, produced
from tests.support.damage.expected import load_expected
from tests.support.damage.faults import Fault, Stop, damage
from tests.support.damage.kinds import CELL_COUNT, KINDS, QUARANTINED_CELLS
from tests.support.damage.log_reader import KAFKA_STORAGE_ERROR, PartitionContent, read_partition
from tests.support.damage.matrix import Cell, run_cells, table
from tests.support.damage.world import CELLS, CLOSED, END, IN_USE, World, batch_at, settings
from tests.support.effort import Effort, chosen_effort
from tests.support.http_json import HTTP_TIMEOUT_S
from tests.support.server import KwireProcess

pytestmark = pytest.mark.timeout(600)

EXPECTED, PENDING = load_expected()
# Starts of which the default effort takes each fault after one way to stop only, in turn.
STARTS = sorted({kind.start for kind in KINDS} - {"one"})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    made = World(tmp_path_factory.mktemp("fault-matrix"), CELL_COUNT)
    made.build(QUARANTINED_CELLS)
    return made


@pytest.fixture(scope="module")
def small_world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """For files that there is one of: with few partitions a server starts sooner."""
    made = World(tmp_path_factory.mktemp("small-fault-matrix"), 2)
    made.build(())
    return made


def is_chosen(cell: Cell) -> bool:
    if cell.kind.name in PENDING:
        return False
    if chosen_effort() is not Effort.QUICK or cell.kind.start == "one":
        return True
    turn = STARTS.index(cell.kind.start) + list(Fault).index(cell.fault)
    return list(Stop)[turn % len(Stop)] is cell.stop


@pytest.mark.parametrize("start", ["one", *STARTS])
def test_nothing_is_lost_in_silence(request: pytest.FixtureRequest, tmp_path: Path, start: str) -> None:
    cells = [cell for cell in EXPECTED if cell.kind.start == start and is_chosen(cell)]
    world: World = request.getfixturevalue("world" if start == "one" else "small_world")
    found = run_cells(world, tmp_path, cells)
    found = {cell: found[cell] for cell in cells}
    print(table(found))
    wrong = {cell: outcome for cell, outcome in found.items() if outcome != EXPECTED[cell]}
    assert not wrong, "\n".join(
        f"{cell.kind.name} {cell.fault} after {cell.stop}: {outcome!r}, not {EXPECTED[cell]}"
        for cell, outcome in wrong.items()
    )


def metric(server: KwireProcess, name: str) -> float:
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=HTTP_TIMEOUT_S) as answer:
        found = re.search(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_a_segment_cut_short_answers_errors_only_where_records_are_missing(world: World, tmp_path: Path) -> None:
    """A closed one and the one in use; both logs take records again, and the metrics and the log say what is lost."""
    closed, in_use = 0, 1
    directory = tmp_path / "server"
    shutil.copytree(world.directory / Stop.CLEAN, directory)
    (directory / "stderr.log").unlink()
    for cell, base in ((closed, CLOSED), (in_use, IN_USE)):
        damage(world.folder(directory, cell) / f"{base:020d}.log", Fault.CUT)
    server = KwireProcess(directory, settings=settings(directory))
    server.start()
    try:
        server.ready()
        # Logs are opened when somebody asks for them; those of the world that were damaged before are not asked for.
        with RawConnection(server.kafka_address) as connection:
            for cell, lost in ((closed, range(12, 15)), (in_use, range(18, 21))):
                content = read_partition(connection, CELLS, cell, END)
                assert {offset: content.errors[offset] for offset in lost} == dict.fromkeys(lost, CORRUPT_MESSAGE)
                assert content.values == {at: value for at, value in world.values.items() if at not in lost}
                taken = produced(
                    connection.call(produce_request(CELLS, batch_at(world.now_ms, [b"new"]), partition=cell), 8)
                )
                assert (taken.error_code, taken.base_offset) == (0, END)
                after = read_partition(connection, CELLS, cell, END + 1)
                assert after.values == {**content.values, END: b"new"}
        assert metric(server, "kwire_storage_quarantined_ranges") == 2
        assert metric(server, "kwire_storage_refusing_logs") == 0
        log = server.stderr_path.read_text()
        assert f"{CELLS}-{closed}: offsets 12 to 14 cannot be read" in log
        assert f"{CELLS}-{in_use}: offsets 18 to 20 cannot be read" in log
    finally:
        server.kill()


def test_a_killed_log_with_a_damaged_end_goes_on_once_the_loss_is_accepted(world: World, tmp_path: Path) -> None:
    directory = tmp_path / "server"
    shutil.copytree(world.directory / Stop.KILLED, directory)
    (directory / "stderr.log").unlink()
    damage(world.folder(directory, 0) / f"{IN_USE:020d}.log", Fault.CUT)
    server = KwireProcess(directory, settings=settings(directory))

    def append() -> tuple[int, int]:
        with RawConnection(server.kafka_address) as connection:
            request = produce_request(CELLS, batch_at(world.now_ms, [b"new"]), partition=0)
            answer = produced(connection.call(request, 8))
            return answer.error_code, answer.base_offset

    def content() -> PartitionContent:
        with RawConnection(server.kafka_address) as connection:
            return read_partition(connection, CELLS, 0, END)

    try:
        server.restart()
        assert append()[0] == KAFKA_STORAGE_ERROR
        before = content()
        data_dir = str(server.data_dir)
        command = ["log", "adopt", data_dir, "--accept-loss", f"{CELLS}-0"]
        assert f"kwire {' '.join(command)}" in server.stderr_path.read_text()
        assert server.stop() == 0
        assert main(command) == 0
        assert main(command) != 0  # there is nothing to be accepted any more
        server.restart()
        code, offset = append()
        assert (code, offset >= END) == (0, True)
        after = content()
        assert after.values == before.values == {at: value for at, value in world.values.items() if at < IN_USE + 3}
        assert {after.errors[at] for at in range(IN_USE + 3, END)} == {CORRUPT_MESSAGE}
    finally:
        server.kill()
