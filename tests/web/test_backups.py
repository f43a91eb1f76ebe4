"""/admin/backups: errors of the disk are named."""

import errno
from pathlib import Path

import pytest

from storage.disk.files import Files
from tests.support.http import http_node
from tests.support.node import in_uvloop


@in_uvloop
async def test_a_file_system_without_hard_links_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Files, source: str, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    async with http_node(tmp_path) as http:
        await http.ask("POST", "/rooms/r/events", {"event_type": "t", "data": 1})
        monkeypatch.setattr(Files, "link", refuse)
        answer = await http.ask("POST", "/admin/backups")
        assert (answer.status, answer.code) == (503, "BackupFailed")
        assert "cannot make a hard link" in answer.json["error"]["message"]
