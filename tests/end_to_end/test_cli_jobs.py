"""Every job of `kwire pipeline` with the installed program, in a terminal and in a pipe. Each call starts Spark."""

import re
from pathlib import Path

import pytest

from tests.support.cli import run_here, run_slow_program
from tests.support.cli_table import JOBS
from tests.support.clients import unique_name
from tests.support.server import KwireProcess
from tests.support.terminal_runner import TerminalRunner

pytestmark = pytest.mark.needs_spark
JAVA = re.compile(r"\bat org\.apache\.|Traceback|\bWARN\b|\b\w+Exception\b")
JOB_SECONDS_MAX = 240.0
CALLS = {
    ("pipeline", "lake"): "--once --topic {topic} --warehouse {folder} {servers}",
    ("pipeline", "maintain"): "--topic {topic} --warehouse {folder}",
    ("pipeline", "reconcile"): "--topic {topic} --warehouse {folder} {servers}",
    ("pipeline", "replay"): "--topic {topic} --to {target} --warehouse {folder} {servers}",
    ("example", "plot"): "{folder}/activity.png {servers}",
    ("pipeline", "analytics"): "--once --topic {topic} --warehouse {folder} --to tables {servers}",
}


def names(server: KwireProcess, folder: Path) -> dict[str, str]:
    topic, target = unique_name("job"), unique_name("job-target")
    kafka = ("--bootstrap-server", server.bootstrap)
    for number in range(3):
        assert run_here("room", "publish", topic, str(number), "--http", server.http_url).code == 0
    assert run_here("topic", "create", target, *kafka).code == 0
    servers = f"--bootstrap-server {server.bootstrap} --http {server.http_url}"
    return {"topic": topic, "target": target, "folder": str(folder), "servers": servers}


def test_every_job_has_a_call() -> None:
    assert set(CALLS) == set(JOBS)


@pytest.mark.timeout(JOB_SECONDS_MAX + 60)
def test_a_job_succeeds_in_a_terminal(kwire: KwireProcess, tmp_path: Path) -> None:
    with TerminalRunner(JOB_SECONDS_MAX) as runner:
        call = CALLS[("pipeline", "lake")].format(**names(kwire, tmp_path))
        code, output = runner.run("pipeline", "lake", *call.split())
    assert code == 0, output
    assert "3 rows added, 3 in all" in output
    assert not JAVA.search(output), output


@pytest.mark.timeout(2 * len(CALLS) * JOB_SECONDS_MAX)
@pytest.mark.full("starts Spark ten times; the jobs themselves are tested in tests/pipeline")
def test_every_job_succeeds_in_a_terminal_and_in_a_pipe(kwire: KwireProcess, tmp_path: Path) -> None:
    here = names(kwire, tmp_path)
    with TerminalRunner(JOB_SECONDS_MAX) as runner:
        for job, call in CALLS.items():
            words = [*job, *call.format(**here).split()]
            done = run_slow_program(JOB_SECONDS_MAX, *words)
            assert done.code == 0, (job, done)
            assert not JAVA.search(done.errors), (job, done.errors)
            code, output = runner.run(*words)
            assert code == 0, (job, output)
            assert not JAVA.search(output), (job, output)
