"""kwire topic: the commands a person types."""

import json
import subprocess

from tests.support.clients import produce_values, unique_name
from tests.support.server import KwireProcess, kwire_command

COMMAND_TIMEOUT_S = 60.0


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(kwire_command()), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def topic(process: KwireProcess, verb: str, *arguments: str) -> str:
    done = run("topic", verb, *arguments, "--bootstrap-server", process.bootstrap)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_topics_are_created_listed_described_and_deleted(kwire: KwireProcess) -> None:
    name = unique_name("cli")
    topic(kwire, "create", name, "--partitions", "3", "--config", "retention.ms=3600000")
    assert name in topic(kwire, "list").split()
    produce_values(kwire.bootstrap, name, [b"a", b"b"], partition=1)
    assert "retention.ms=3600000" in topic(kwire, "describe", name)
    described = json.loads(topic(kwire, "describe", name, "--json"))
    assert described["topic"] == name
    assert [(row["partition"], row["first"], row["end"]) for row in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 2),
        (2, 0, 0),
    ]
    topic(kwire, "delete", name)
    assert name not in topic(kwire, "list").split()


def test_what_cannot_be_done_is_said_without_a_traceback(kwire: KwireProcess) -> None:
    missing = unique_name("cli-missing")
    for verb in ("describe", "delete"):
        refused = run("topic", verb, missing, "--bootstrap-server", kwire.bootstrap)
        assert refused.returncode != 0
        assert missing in refused.stderr
        assert "Traceback" not in refused.stderr
    invalid = run("topic", "create", "no/slash", "--bootstrap-server", kwire.bootstrap)
    assert invalid.returncode != 0
    assert "no/slash" in invalid.stderr
    assert "Traceback" not in invalid.stderr
