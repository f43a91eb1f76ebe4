"""kwire pipeline: its jobs are named without Spark, and what cannot run says why in a line."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from kwire.cli import main
from kwire.exit_codes import INTERRUPTED
from kwire.pipeline import jobs
from kwire.pipeline.jobs import CANNOT_RUN, JOBS, error_text
from kwire.pipeline.server import Login, Server, jaas_config
from tests.support.certificates import Authority

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
        (["--bootstrap-server", "127.0.0.1:9"], "nothing listens on 127.0.0.1:9"),
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


def test_ctrl_c_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "run", interrupted)
    words = ["lake", "--bootstrap", "a:1", "--http", "http://a", "--warehouse", "lake"]
    assert main(["pipeline", *words]) == INTERRUPTED


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
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Server]:
    """The servers that jobs were started with. No job runs."""
    started: list[Server] = []

    def run(options: argparse.Namespace) -> int:
        started.append(options.server)
        return 0

    monkeypatch.setattr(jobs, "run", run)
    monkeypatch.setenv("KWIRE_CONFIG", str(tmp_path / "profiles.yaml"))
    for name in ("KWIRE_BOOTSTRAP_SERVER", "KWIRE_HTTP", "KWIRE_PROFILE", "KWIRE_USER", "KWIRE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    return started


JOB = ("pipeline", "reconcile", "--topic", "t", "--warehouse", "w")


def test_jobs_take_addresses_from_options_environment_and_profiles(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(JOB) == 0
    assert main(["profile", "set", "here", "bootstrap.servers=h:1", "kwire.http=http://h:2"]) == 0
    assert main([*JOB, "--profile", "here"]) == 0
    monkeypatch.setenv("KWIRE_BOOTSTRAP_SERVER", "e:1")
    assert main([*JOB, "--profile", "here"]) == 0
    assert main([*JOB, "--bootstrap", "o:1", "--http", "o:2"]) == 0
    assert main([*JOB, "--bootstrap-server", "o:3"]) == 0
    assert [(one.bootstrap, one.http) for one in servers] == [
        ("127.0.0.1:9092", "http://127.0.0.1:8082"),
        ("h:1", "http://h:2"),
        ("e:1", "http://h:2"),
        ("o:1", "http://o:2"),
        ("o:3", "http://127.0.0.1:8082"),
    ]
    assert {one.protocol for one in servers} == {"PLAINTEXT"}


def test_jobs_take_logins_from_options_environment_files_and_profiles(
    servers: list[Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=f\nsasl.password=in-file\n")
    assert main([*JOB, "--command-config", str(path)]) == 0
    monkeypatch.setenv("KWIRE_PASSWORD", "in-environment")
    assert main([*JOB, "--user", "o"]) == 0
    assert main(["profile", "set", "here", "sasl.username=p"]) == 0
    assert main([*JOB, "--profile", "here"]) == 0
    monkeypatch.setenv("KWIRE_USER", "e")
    assert main(JOB) == 0
    assert [(one.protocol, one.mechanism, one.login) for one in servers] == [
        ("SASL_PLAINTEXT", "PLAIN", Login("f", "in-file")),
        *(("SASL_PLAINTEXT", "SCRAM-SHA-512", Login(user, "in-environment")) for user in ("o", "p", "e")),
    ]
    assert all(one.http_login == one.login for one in servers)
    assert "in-file" not in repr(servers)


def test_a_password_is_asked_for_once(servers: list[Server], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def typed(prompt: str) -> str:
        asked.append(prompt)
        return "typed"

    monkeypatch.setattr("getpass.getpass", typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert main([*JOB, "--user", "alice"]) == 0
    assert (asked, servers[0].login, servers[0].http_login) == (
        ["Password of alice: "],
        Login("alice", "typed"),
        Login("alice", "typed"),
    )


def test_certificates_are_given_to_java_as_pem(servers: list[Server], tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    key_store = authority.pkcs12("client.p12", "of-store")
    path = tmp_path / "client.properties"
    path.write_text(
        f"security.protocol=SSL\nssl.truststore.location={authority.pkcs12_trust('trust.p12', 'of-trust')}\n"
        f"ssl.truststore.password=of-trust\nssl.keystore.location={key_store}\nssl.keystore.password=of-store\n"
        "ssl.endpoint.identification.algorithm=\n"
    )
    assert main([*JOB, "--command-config", str(path)]) == 0
    options = servers[0].spark_options()
    assert options["kafka.security.protocol"] == "SSL"
    assert options["kafka.ssl.truststore.certificates"].split() == authority.path.read_text().split()
    assert options["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert options["kafka.ssl.keystore.certificate.chain"].startswith("-----BEGIN CERTIFICATE-----")
    assert options["kafka.ssl.endpoint.identification.algorithm"] == ""
    assert "kafka.sasl.jaas.config" not in options
    assert "PRIVATE KEY" not in repr(servers)


def test_a_login_is_quoted_for_java() -> None:
    assert jaas_config("PLAIN", Login('a"b', "c\\d;")) == (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="a\\"b" password="c\\\\d;";'
    )


def test_refusals_of_the_server_are_one_line() -> None:
    java = (
        "An error occurred while calling o1.count.\n: org.apache.spark.SparkException: Job aborted: Lost task 0.0: "
        "org.apache.kafka.common.errors.{}\n\nDriver stacktrace:\n\tat org.apache.spark.Foo(Foo.scala:1)"
    )
    for error, text in (
        (
            "TopicAuthorizationException: Not authorized to access topics: [orders]",
            "the user has no right to read or write a topic: Not authorized to access topics: [orders]",
        ),
        ("SaslAuthenticationException: no", "the server refused the login: no"),
    ):
        assert error_text(ValueError(java.format(error))) == text
