"""kwire pipeline: its jobs are named without Spark, and what cannot run says why in a line."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from kwire.cli import main
from kwire.exit_codes import INTERRUPTED
from kwire.pipeline import __main__ as spark_submitted
from kwire.pipeline import jobs
from kwire.pipeline.jobs import CANNOT_RUN, JOBS, error_text

RUN_S = 60.0


def run_python(program: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=RUN_S, check=False
    )


def test_the_jobs_are_named_with_their_purpose(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "--help"])
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    for name, job in JOBS.items():
        assert f"{name} {job.purpose}" in text


@pytest.mark.parametrize("job", JOBS)
def test_each_job_tells_its_arguments(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", job, "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: kwire pipeline {job} ")
    assert "--" in text


def test_help_needs_no_spark() -> None:
    program = (
        "import sys\n"
        "sys.modules['pyspark'] = None\n"  # as if it were not installed
        "from kwire.cli import main\n"
        "main(sys.argv[1:])"
    )
    for words in (("--help",), ("pipeline", "--help"), *(("pipeline", job, "--help") for job in JOBS)):
        ended = run_python(program, *words)
        assert ended.returncode == 0, (words, ended.stderr)


def test_without_spark_a_job_says_what_to_install() -> None:
    program = "import sys\nsys.modules['pyspark'] = None\nfrom kwire.cli import main\nsys.exit(main(sys.argv[1:]))"
    ended = run_python(program, "pipeline", "analytics", "--topic", "lobby", "--warehouse", "lake")
    assert ended.returncode == CANNOT_RUN
    assert ended.stderr == (
        "kwire: jobs need Spark: install kwire with the extra `spark`, for example with `scripts/install spark`\n"
    )


@pytest.mark.needs_spark
@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--window", "1m", "--slide", "7s"], "--window 1m: must be a multiple of --slide 7s"),
        (["--window", "1h", "--slide", "1s"], "each event would be counted in 3600 windows"),
        (["--top", "1001"], "--top: must be from 1 to 1000, got 1001"),
        (["--user-field", "a..b"], "expected a field name, or several with dots between them, got 'a..b'"),
        (["--results-room", "lobby"], "lobby is the room for results"),
        (["--results-room", "two words"], "--results-room: only letters, digits"),
        (["--results-room", ".."], "--results-room: only letters, digits"),
        (["--http", "http://127.0.0.1:9"], "http://127.0.0.1:9"),
    ],
)
def test_what_makes_no_sense_is_refused_before_spark_starts(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "analytics", "--topic", "lobby", "--warehouse", "lake", *words]) == CANNOT_RUN
    error = capsys.readouterr().err
    assert error.startswith("kwire: ")
    assert reason in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("text", ["", "5", "m", "-5s", "1.5s", "5w", "400d", "\u0665s"])
def test_spans_of_time_are_checked_by_the_parser(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "analytics", "--topic", "lobby", "--warehouse", "lake", f"--window={text}"])
    assert ended.value.code == 2
    assert "expected a duration such as" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--metrics", "9108"], "--metrics: expected HOST:PORT, got '9108'"),
        (["--interval", "soon"], "must be a number of seconds from 0 to 86,400, got 'soon'"),
        (["--top", "0"], "must be a whole number from 1 to 1,000,000,000, got '0'"),
        (["--pattern", ".*"], "not allowed with argument --topic"),
        (["--result", "weather"], "'weather' is not a known --result: choose from counts"),
    ],
)
def test_other_words_are_checked_by_the_parser(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "analytics", "--topic", "lobby", "--warehouse", "lake", *words])
    assert ended.value.code == 2
    assert reason in capsys.readouterr().err


def test_ctrl_c_is_told_by_the_exit_code_of_both_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "run", interrupted)
    words = ["lake", "--bootstrap", "a:1", "--http", "http://a", "--warehouse", "lake"]
    monkeypatch.setattr(sys, "argv", ["kwire.pipeline", *words])
    assert main(["pipeline", *words]) == INTERRUPTED
    assert spark_submitted.main() == INTERRUPTED


def test_spans_are_written_as_they_are_read() -> None:
    analysis = importlib.import_module("kwire.pipeline.analytics.analysis")
    for text in ("500ms", "30s", "5m", "2h", "1d", "90s", "25h"):
        assert analysis.span_text(analysis.span_ms(text)) == text
    assert analysis.span_text(analysis.span_ms("120s")) == "2m"


def test_of_spark_s_words_the_first_are_told() -> None:
    error = ValueError("the table is gone\n\tat org.apache.spark.Foo(Foo.scala:1)\n\tat more")
    assert error_text(error) == "the table is gone"
    assert error_text(ValueError()) == "ValueError"


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, str]]:
    """The addresses that jobs were started with. No job runs."""
    started: list[tuple[str, str]] = []

    def run(options: argparse.Namespace) -> int:
        started.append((options.bootstrap, options.http))
        return 0

    monkeypatch.setattr(jobs, "run", run)
    monkeypatch.setenv("KWIRE_CONFIG", str(tmp_path / "profiles.yaml"))
    for name in ("KWIRE_BOOTSTRAP_SERVER", "KWIRE_HTTP", "KWIRE_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    return started


def test_jobs_take_addresses_from_options_environment_and_profiles(
    addresses: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ["pipeline", "reconcile", "--topic", "t", "--warehouse", "w"]
    assert main(job) == 0
    assert main(["profile", "set", "here", "bootstrap.servers=h:1", "kwire.http=http://h:2"]) == 0
    assert main([*job, "--profile", "here"]) == 0
    monkeypatch.setenv("KWIRE_BOOTSTRAP_SERVER", "e:1")
    assert main([*job, "--profile", "here"]) == 0
    assert main([*job, "--bootstrap", "o:1", "--http", "http://o:2"]) == 0
    assert main([*job, "--bootstrap-server", "o:3"]) == 0
    assert addresses == [
        ("127.0.0.1:9092", "http://127.0.0.1:8082"),
        ("h:1", "http://h:2"),
        ("e:1", "http://h:2"),
        ("o:1", "http://o:2"),
        ("o:3", "http://127.0.0.1:8082"),
    ]


def test_a_profile_with_a_login_is_refused(
    addresses: list[tuple[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = ("bootstrap.servers=h:1", "security.protocol=SSL")
    assert main(["profile", "set", "secure", *settings]) == 0
    job = ["pipeline", "reconcile", "--topic", "t", "--warehouse", "w", "--profile", "secure"]
    assert main(job) == CANNOT_RUN
    assert "jobs connect without TLS and without a login" in capsys.readouterr().err
    assert addresses == []
