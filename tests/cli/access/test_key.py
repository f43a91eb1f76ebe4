"""kwire key on the data directory of a stopped server."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.access_commands import succeeded
from tests.support.cli import Done, run_here


def run(data_dir: Path, *arguments: object) -> Done:
    return run_here("key", *arguments, "--data-dir", data_dir, "-o", "json")


def json_of(data_dir: Path, *arguments: object) -> Any:
    return json.loads(succeeded(run(data_dir, *arguments)))


def test_keys_of_a_stopped_server(tmp_path: Path) -> None:
    data_dir = tmp_path / "new"
    key = json_of(data_dir, "create", "--scope", "acme", "--max-events", 9, "--max-subscriptions", 2)
    assert key.keys() == {"id", "secret", "token"}
    assert key["token"] == f"{key['id']}.{key['secret']}"
    root = json_of(data_dir, "create", "--root", "--scope", "admins", "--expires-in", 3600)
    alias = json_of(data_dir, "create", "--alias-of", key["id"], "--description", "second")
    rows = {row["id"]: row for row in json_of(data_dir, "list")}
    assert [rows[one["id"]]["scope"] for one in (key, root, alias)] == ["acme", "admins", "acme"]
    assert (rows[key["id"]]["max_events"], rows[alias["id"]]["max_subscriptions"]) == (9, 2)
    assert rows[root["id"]]["root"] is True
    assert rows[root["id"]]["expires_at"] is not None
    (altered,) = json_of(data_dir, "alter", key["id"], "--max-events", "none", "--publish-rate", 7)
    assert [altered[name] for name in ("max_events", "max_subscriptions", "publish_rate")] == [None, 2, 7]
    rows = {row["id"]: row for row in json_of(data_dir, "list")}
    assert [rows[one["id"]]["publish_rate"] for one in (key, alias, root)] == [7, 7, None]
    rotated = json_of(data_dir, "rotate", key["id"], "--overlap", 60)
    assert rotated["id"] == key["id"]
    assert rotated["secret"] != key["secret"]
    (shown,) = [row for row in json_of(data_dir, "list") if row["id"] == key["id"]]
    assert shown["previous_secret_expires_at"] is not None
    assert json_of(data_dir, "revoke", "--yes", key["id"]) == {"revoked": sorted((key["id"], alias["id"]))}
    assert [row["id"] for row in json_of(data_dir, "list")] == [root["id"]]
    for path in data_dir.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert all(one["secret"].encode() not in content for one in (key, root, alias, rotated)), path


def test_a_table_for_people(tmp_path: Path) -> None:
    done = run_here("key", "create", "--scope", "acme", "--data-dir", tmp_path / "data")
    assert re.fullmatch(
        r"id: kwk_\w{22}\nsecret: kwsecret_\w{49}\ntoken: kwk_\w{22}\.kwsecret_\w{49}\n", succeeded(done)
    )
    header, row = succeeded(run_here("key", "list", "--data-dir", tmp_path / "data")).splitlines()
    assert header.split()[:2] == ["id", "scope"]
    assert row.split()[1] == "acme"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("create",), "a key needs a scope, unless it is a root key or an alias"),
        (("create", "--scope", "a b"), "the name of a scope must have"),
        (("create", "--scope", "a", "--max-events", "-1"), "max_events must be 0 or more, got -1"),
        (("create", "--scope", "a", "--expires-in", "0"), "the key must expire in the future"),
        (("create", "--alias-of", "kwk_x"), "the key kwk_x does not exist"),
        (("alter", "kwk_x", "--max-events", "1"), "the key kwk_x does not exist"),
        (("alter", "kwk_x"), "no limit is given"),
        (("rotate", "kwk_x"), "the key kwk_x does not exist"),
        (("rotate", "kwk_x", "--overlap", "-1"), "the overlap must be 0 to"),
        (("revoke", "--yes", "kwk_x"), "the key kwk_x does not exist"),
    ],
)
def test_problems_are_named(tmp_path: Path, arguments: tuple[str, ...], reason: str) -> None:
    json_of(tmp_path / "data", "create", "--root")
    done = run(tmp_path / "data", *arguments)
    assert done.code == (2 if reason == "no limit is given" else 1)
    assert reason in done.errors


def test_a_missing_directory_is_created_by_create_only(tmp_path: Path) -> None:
    assert "does not exist" in run(tmp_path / "none", "list").errors
    both = run_here("key", "list", "--data-dir", tmp_path, "--http", "http://127.0.0.1:1")
    assert "--data-dir is for a stopped server" in both.errors
