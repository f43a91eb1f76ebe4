"""kwire topic: the commands a person types."""

import json
from collections.abc import Callable

from tests.support.cli import Done, run_here, run_program
from tests.support.clients import produce_values, unique_name
from tests.support.server import KwireProcess


def topic(process: KwireProcess, verb: str, *arguments: str, run: Callable[..., Done] = run_here) -> str:
    done = run("topic", verb, *arguments, "--bootstrap-server", process.bootstrap)
    assert done.code == 0, done.out + done.errors
    return done.out


def test_topics_are_created_listed_described_and_deleted(kwire: KwireProcess) -> None:
    name = unique_name("cli")
    topic(kwire, "create", name, "--partitions", "3", "--config", "retention.ms=3600000", run=run_program)
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
    topic(kwire, "delete", "--yes", name)
    assert name not in topic(kwire, "list").split()


def test_what_cannot_be_done_is_said_without_a_traceback(kwire: KwireProcess) -> None:
    missing = unique_name("cli-missing")
    for verb in ("describe", "delete"):
        refused = run_program(
            "topic", verb, missing, *(["--yes"] if verb == "delete" else []), "--bootstrap-server", kwire.bootstrap
        )
        assert refused.code != 0
        assert missing in refused.errors
        assert "Traceback" not in refused.errors
    invalid = run_here("topic", "create", "no/slash", "--bootstrap-server", kwire.bootstrap)
    assert invalid.code != 0
    assert "no/slash" in invalid.errors
    assert "Traceback" not in invalid.errors
