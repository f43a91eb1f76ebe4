"""kwire log adopt: what it prints when it cannot complete the adoption."""

from pathlib import Path

import pytest

from kwire.broker.topics.adoption import Adoption
from kwire.cli import main
from kwire.exit_codes import CANNOT_RUN
from storage.disk.mirrored_journal import JOURNAL_NAME, MIRROR_NAME


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A data directory with two damaged copies of the catalogue."""
    for name in (JOURNAL_NAME, MIRROR_NAME):
        (tmp_path / name).write_bytes(b"not a journal")
    return tmp_path


def adopt(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["log", "adopt", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_refused_adoption_says_that_it_has_rebuilt_the_catalogue(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, errors = adopt(capsys, damaged, "--accept-loss", "orders-0")
    assert code == CANNOT_RUN
    assert "the catalogue has no such partition" in errors
    assert "both copies of the catalogue were damaged" in out
    assert (damaged / JOURNAL_NAME).read_bytes() != b"not a journal"


def test_a_failed_adoption_names_no_change_that_it_has_not_made(
    damaged: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = damaged / "orders-0"
    folder.mkdir()
    (folder / "00000000000000000000.log").touch()

    def fail(adoption: Adoption) -> None:
        raise OSError("the disk fails")

    monkeypatch.setattr(Adoption, "_rebuild_node", fail)
    code, out, errors = adopt(capsys, damaged)
    assert code == CANNOT_RUN
    assert "the disk fails" in errors
    assert "both copies of the catalogue were damaged" in out
    assert "partition.metadata was rewritten" in out
    assert "topic orders is in the catalogue again" not in out
    monkeypatch.undo()
    code, out, errors = adopt(capsys, damaged)
    assert (code, errors) == (0, "")
    assert "topic orders is in the catalogue again" in out


def test_the_help_does_not_promise_that_a_failure_changed_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["log", "adopt", "--help"])
    assert "nothing was changed" not in capsys.readouterr().out
