"""kwire user and kwire acl on the data directory of a stopped server."""

import os
import pty
import sys
from pathlib import Path

import pytest

from storage.data_directory.store import LOCK_NAME
from storage.disk.files import Files
from tests.support.access_commands import json_of, run_with_password, succeeded
from tests.support.cli import Done, run_here, run_program

PASSWORD = "s3cr3t-of-the-test"
BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def create(data_dir: Path, name: str, *arguments: str) -> Done:
    return run_with_password(PASSWORD, "user", "create", name, "--data-dir", data_dir, *arguments)


def names(data_dir: Path) -> list[str]:
    return [row["user"] for row in json_of("user", "list", "--data-dir", data_dir)]


def test_the_first_user_creates_the_data_directory(tmp_path: Path) -> None:
    data_dir = tmp_path / "new" / "data"
    done = create(data_dir, "admin", "--role", "admin")
    assert (done.code, done.out) == (0, "created admin\n")
    assert done.errors == f"kwire: created the data directory {data_dir}\n"
    assert create(data_dir, "app", "--role", "writer", "--prefix", "orders.").errors == ""
    assert succeeded(create(data_dir, "guest", "--json")) == '{"created": ["guest"]}\n'
    assert json_of("user", "list", "--data-dir", data_dir) == [
        {"user": "admin", "mechanisms": BOTH, "roles": [{"role": "admin", "prefix": "*"}], "other_acls": 0},
        {"user": "app", "mechanisms": BOTH, "roles": [{"role": "writer", "prefix": "orders."}], "other_acls": 0},
        {"user": "guest", "mechanisms": BOTH, "roles": [], "other_acls": 0},
    ]
    assert succeeded(run_program("user", "list", "--data-dir", data_dir)).splitlines()[2].split() == [
        "app",
        "SCRAM-SHA-256,",
        "SCRAM-SHA-512",
        "writer",
        "of",
        "orders.*",
        "-",
    ]


def test_the_password_is_nowhere(tmp_path: Path) -> None:
    done = create(tmp_path, "alice")
    changed = run_with_password(PASSWORD, "user", "passwd", "alice", "--data-dir", tmp_path)
    refused = create(tmp_path, "alice")
    for one in (done, changed, refused):
        assert PASSWORD not in one.out + one.errors
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert PASSWORD.encode() not in path.read_bytes(), path


def test_a_changed_password_has_new_credentials(tmp_path: Path) -> None:
    create(tmp_path, "alice")
    before = (tmp_path / "metastore.journal").read_bytes()
    done = run_with_password("another-one", "user", "passwd", "alice", "--data-dir", tmp_path)
    assert succeeded(done) == "changed alice\n"
    after = (tmp_path / "metastore.journal").read_bytes()
    assert after.startswith(before)
    assert after != before
    assert names(tmp_path) == ["alice"]


def test_a_deleted_user_has_no_rights_left(tmp_path: Path) -> None:
    for name in ("alice", "bob"):
        create(tmp_path, name, "--role", "reader")
    assert succeeded(run_here("user", "delete", "--yes", "alice", "--data-dir", tmp_path)) == "deleted alice\n"
    assert (
        succeeded(run_here("user", "delete", "--yes", "bob", "--keep-acls", "--data-dir", tmp_path)) == "deleted bob\n"
    )
    assert names(tmp_path) == []
    left = json_of("acl", "list", "--data-dir", tmp_path)
    assert {row["principal"] for row in left} == {"User:bob"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("user", "create", "alice"), "user alice exists already: change its password with kwire user passwd"),
        (("user", "create", "bob", "--prefix", "x"), "--prefix restricts a role: name it with --role"),
        (("user", "create", "bob", "--role", "admin", "--prefix", "x"), "cannot be restricted to the prefix"),
        (("user", "create", ""), "the user name must not be empty"),
        (("user", "passwd", "bob"), "user bob does not exist"),
    ],
)
def test_what_cannot_be_done_changes_nothing(tmp_path: Path, arguments: tuple[str, ...], problem: str) -> None:
    create(tmp_path, "alice")
    before = (tmp_path / "metastore.journal").read_bytes()
    done = run_with_password("another-one", *arguments, "--data-dir", tmp_path)
    assert done.code == (2 if problem.startswith("--") else 1)
    assert done.errors.startswith("kwire: ")
    assert problem in done.errors
    assert (tmp_path / "metastore.journal").read_bytes() == before


def test_of_several_users_those_that_exist_are_deleted(tmp_path: Path) -> None:
    create(tmp_path, "alice")
    done = run_here("user", "delete", "--yes", "bob", "alice", "--data-dir", tmp_path)
    assert done == (1, "deleted alice\n", "kwire: user bob does not exist\n")
    assert names(tmp_path) == []


def test_there_is_no_password_without_a_terminal(tmp_path: Path) -> None:
    done = run_program("user", "create", "alice", "--data-dir", tmp_path / "data")
    assert done.code == 2
    assert "there is no terminal to ask for the password: use --password-stdin" in done.errors
    empty = run_with_password("", "user", "create", "alice", "--data-dir", tmp_path / "data")
    assert (empty.code, empty.errors) == (1, "kwire: the password must not be empty\n")
    assert names(tmp_path / "data") == []


@pytest.mark.parametrize("verb", ["create", "passwd"])
def test_short_passwords_are_refused(tmp_path: Path, verb: str) -> None:
    create(tmp_path, "alice")
    before = (tmp_path / "metastore.journal").read_bytes()
    name = "bob" if verb == "create" else "alice"
    done = run_with_password("s3cr3t7", "user", verb, name, "--data-dir", tmp_path)
    assert done == (1, "", "kwire: the password must have at least 8 characters\n")
    assert (tmp_path / "metastore.journal").read_bytes() == before


@pytest.mark.parametrize(("second", "code"), [(PASSWORD, 0), ("mistyped", 1)])
def test_at_a_terminal_the_password_is_asked_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, code: int
) -> None:
    answers = [PASSWORD, second]
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return answers.pop(0)

    monkeypatch.setattr("getpass.getpass", answer)
    parent, child = pty.openpty()
    try:
        with os.fdopen(child) as terminal:
            monkeypatch.setattr(sys, "stdin", terminal)
            done = run_here("user", "create", "alice", "--data-dir", tmp_path)
    finally:
        os.close(parent)
    assert done.code == code
    assert asked == ["New password of alice: ", "Repeat the password: "]
    assert names(tmp_path) == ([] if code else ["alice"])


def test_a_running_server_is_not_disturbed(tmp_path: Path) -> None:
    create(tmp_path, "alice")
    files = Files()
    held = files.lock(str(tmp_path / LOCK_NAME))
    assert held is not None
    try:
        before = (tmp_path / "metastore.journal").read_bytes()
        for command in (("user", "list"), ("user", "delete", "--yes", "alice"), ("acl", "list")):
            done = run_here(*command, "--data-dir", tmp_path)
            assert done.code == 1
            assert "is in use, so the server is running: use --bootstrap-server" in done.errors
        assert (tmp_path / "metastore.journal").read_bytes() == before
    finally:
        files.close(held)
    assert names(tmp_path) == ["alice"]


def test_another_directory_is_refused(tmp_path: Path) -> None:
    missing = run_here("user", "list", "--data-dir", tmp_path / "nothing")
    assert (missing.code, missing.errors) == (1, f"kwire: {tmp_path}/nothing does not exist\n")
    (tmp_path / "file").write_text("")
    assert "is not a directory" in create(tmp_path / "file", "alice").errors
    second = tmp_path / "second"
    (second / "orders-0").mkdir(parents=True)
    done = create(second, "alice")
    assert done.code == 1
    assert "has no metastore.journal" in done.errors
    assert sorted(os.listdir(second)) == ["orders-0"]


def test_a_damaged_journal_is_not_changed(tmp_path: Path) -> None:
    create(tmp_path, "alice")
    for name in ("metastore.journal", "metastore.mirror"):
        path = tmp_path / name
        content = bytearray(path.read_bytes())
        content[20] ^= 0xFF
        path.write_bytes(bytes(content))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = create(tmp_path, "bob")
    assert done.code == 1
    assert "the catalogue is damaged" in done.errors
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_options_of_a_running_server_are_refused(tmp_path: Path) -> None:
    done = run_here("user", "list", "--data-dir", tmp_path, "--bootstrap-server", "127.0.0.1:1")
    assert done.code == 2
    assert "--data-dir is for a stopped server" in done.errors


# --- ACLs


def acl(data_dir: Path, *arguments: str) -> Done:
    return run_here("acl", *arguments, "--data-dir", data_dir)


def listed(data_dir: Path, *arguments: str) -> list[str]:
    rows = json_of("acl", "list", "--data-dir", data_dir, *arguments)
    order = ("principal", "permission", "operation", "resource", "name", "pattern", "host")
    return [" ".join(row[name] for name in order) for row in rows]


def test_acls_are_added_listed_and_deleted(tmp_path: Path) -> None:
    alice = ("--principal", "User:alice")
    done = acl(tmp_path, "add", *alice, "--allow", "read,Describe_Configs", "--topic", "orders")
    assert " ".join(succeeded(done).splitlines()[1].split()) == "User:alice allow read topic orders literal *"
    succeeded(acl(tmp_path, "add", *alice, "--allow", "read", "--topic", "ord", "--group", "g", "--prefixed"))
    host = ("--host", "10.0.0.1")
    succeeded(acl(tmp_path, "add", "--principal", "User:*", "--deny", "all", "--transactional-id", "*", *host))
    succeeded(acl(tmp_path, "add", *alice, "--allow", "idempotent-write", "--cluster"))
    assert listed(tmp_path) == [
        "User:* deny all transactional-id * literal 10.0.0.1",
        "User:alice allow read topic ord prefixed *",
        "User:alice allow read topic orders literal *",
        "User:alice allow describe-configs topic orders literal *",
        "User:alice allow read group g prefixed *",
        "User:alice allow idempotent-write cluster kafka-cluster literal *",
    ]
    # A name selects everything that covers it.
    assert listed(tmp_path, "--topic", "orders") == [
        "User:alice allow read topic ord prefixed *",
        "User:alice allow read topic orders literal *",
        "User:alice allow describe-configs topic orders literal *",
    ]
    assert listed(tmp_path, "--topic", "ord", "--prefixed") == ["User:alice allow read topic ord prefixed *"]
    assert len(listed(tmp_path, "--prefixed")) == 2
    assert listed(tmp_path, *host) == ["User:* deny all transactional-id * literal 10.0.0.1"]
    assert len(listed(tmp_path, *alice, "--allow", "read")) == 3
    # A name to delete is compared exactly.
    deleted = json_of("acl", "delete", "--yes", "--topic", "orders", "--data-dir", tmp_path)
    assert [row["operation"] for row in deleted] == ["read", "describe-configs"]
    assert listed(tmp_path, "--topic", "orders") == ["User:alice allow read topic ord prefixed *"]
    succeeded(acl(tmp_path, "delete", "--yes", *alice, "--topic", "ord", "--prefixed"))
    succeeded(acl(tmp_path, "delete", "--yes", *alice, "--cluster", "--allow", "idempotent-write"))
    assert listed(tmp_path, *alice) == ["User:alice allow read group g prefixed *"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("add --allow read --topic a", "--principal is missing"),
        ("add --principal alice --allow read --topic a", "expected a principal of the form User:NAME, got 'alice'"),
        ("add --principal User:a --allow read", "the resource is missing: use --topic"),
        ("add --principal User:a --topic a", "the operations are missing: use --allow or --deny"),
        (
            "add --principal User:a --topic a --allow rite",
            "--allow: 'rite' is not an operation; operations are all, read",
        ),
        ("add --principal User:a --group a --allow write", "a group has no operation write; it has all, read, delete"),
        ("add --principal User:a --topic * --prefixed --allow read", "leave out --prefixed"),
        ("delete --allow read", "name the ACLs to delete with --principal, --topic"),
        ("delete --principal User:a", "no ACL matches, nothing was deleted"),
    ],
)
def test_wrong_acls_are_explained(tmp_path: Path, arguments: str, problem: str) -> None:
    create(tmp_path, "alice")
    before = (tmp_path / "metastore.journal").read_bytes()
    done = acl(tmp_path, *arguments.split())
    assert done.code == (1 if problem.startswith("no ACL matches") else 2)
    assert problem in done.errors
    assert (tmp_path / "metastore.journal").read_bytes() == before
