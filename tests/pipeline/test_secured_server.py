"""Jobs on a server with TLS, logins and ACLs: what they need, what they refuse, and where no secret may appear."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kwire.cli import main
from kwire.cli.connection.errors import LoginRefused
from kwire.exit_codes import CANNOT_RUN, DONE
from kwire.pipeline.columns import table_name
from kwire.pipeline.topic_facts import TopicFactsReader
from tests.support.clients import unique_name
from tests.support.jobs import job_options
from tests.support.secured_lake import CERTIFICATE_USER, USER, SecuredLake, running_secured_lake
from tests.support.spark import warehouse_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.needs_spark,
    pytest.mark.timeout(300),
    # PySpark leaves the sockets over which it collects rows to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipeline.md"
RIGHTS_HEAD = "| job | on | rights |"
REPORTS = "kwire.jobs"
LINES = ["one", "two", "three"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredLake]:
    with running_secured_lake(tmp_path_factory.mktemp("secured")) as running:
        yield running


class World:
    """A topic with some records, and the jobs of one session on it."""

    def __init__(self, server: SecuredLake, spark: "SparkSession") -> None:
        self.server = server
        self.spark = spark
        self.warehouse = warehouse_of(spark)
        self.topic, self.target, self.results = (unique_name(name) for name in ("orders", "copy", "results"))
        # The names of topics, as the table of the page has them.
        self.names = {
            "each topic": self.topic,
            "the topic of the table": self.topic,
            "the target topic": self.target,
            "the results room": self.results,
            "the topic for bad records": f"{self.topic}.dead-letters",
            f"the room `{REPORTS}`": REPORTS,
        }

    def create(self) -> None:
        for topic in (self.topic, self.target):
            assert self.server.admin("topic", "create", topic).code == DONE
        # The last record is a bad one: its value is not text.
        self.server.produce(self.topic, [*LINES, b"\xff"])

    def run(self, job: str, *more: str, user: str = USER) -> int:
        words = {
            "analytics": ("--results-room", self.results, "--to", "room", "--result", "top", "--once"),
            "lake": ("--once",),
            "replay": ("--to", self.target),
        }.get(job, ())
        common = ("--topic", self.topic, "--warehouse", self.warehouse)
        return main(["pipeline", job, *self.server.config(user), *common, *words, *more])

    def rows(self) -> list[str]:
        found = self.spark.table(f"kwire.{table_name(self.topic)}").collect()
        return [row["value"] for row in sorted(found, key=lambda row: row["kafka_offset"])]

    def events_of(self, room: str) -> list[str]:
        """The events of a room, as lines of JSON."""
        done = self.server.admin("room", "history", room)
        assert done.code == DONE, done.errors
        return done.out.splitlines()


@pytest.fixture
def world(server: SecuredLake, spark: "SparkSession") -> World:
    made = World(server, spark)
    made.create()
    return made


def rights_of(job: str) -> dict[str, list[str]]:
    """The rights that the page lists for a job, by Kafka's names of operations."""
    text = PAGE.read_text()
    rows = text[text.index(RIGHTS_HEAD) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    return {
        on: [right.upper().replace("-", "_") for right in re.findall(r"`([a-z-]+)`", rights)]
        for jobs, on, rights in cells
        if job in re.split(r"`, `|`", jobs) or job == jobs
    }


def test_the_rights_of_the_page_suffice_and_none_is_more_than_needed(
    world: World, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Also: what the jobs write, report, print and tell Spark has no secret."""
    jobs = {"lake": ("--bad-rows", "topic"), "reconcile": ("--bad-elsewhere",), "replay": (), "analytics": ()}
    (reports,) = rights_of("all jobs")
    world.server.allow(world.names[reports], rights_of("all jobs")[reports])
    with event_log(world.spark, tmp_path / "events") as logged:
        for job, more in jobs.items():
            listed = rights_of(job) | (rights_of("lake --bad-rows topic") if job == "lake" else {})
            # A right to create comes first, while the topic is not there yet.
            needed = sorted(
                ((world.names[on], right) for on, rights in listed.items() for right in rights),
                key=lambda one: (one[1] != "CREATE", one),
            )
            for topic, right in needed:
                world.server.allow(topic, [right])
            capfd.readouterr()
            for topic, right in needed:
                world.server.forbid(topic, right)
                assert world.run(job, *more) == CANNOT_RUN, f"{job} does not need {right} on {topic}"
                error = capfd.readouterr().err
                # Only the attempt shows whether a topic may be created.
                assert right in error or (right == "CREATE" and "the user has no right to read or write" in error)
                assert topic in error
                if f": user {USER} is not allowed to" in error:
                    assert f"add the right with kwire acl add --principal User:{USER} --allow" in error
                assert error.count("\n") == 1, error
                world.server.allow(topic, [right])
            assert world.run(job, *more) == DONE, capfd.readouterr().err
            for topic, right in needed:
                world.server.forbid(topic, right)
    printed = capfd.readouterr()
    assert world.rows() == LINES
    assert "the progress is not reported" not in printed.err
    found = [one for one in world.events_of(REPORTS) if world.topic in one]
    assert sum('"done"' in one for one in found) >= len(jobs)
    check_no_secret(
        world,
        {
            "standard output": printed.out,
            "standard error": printed.err,
            REPORTS: "".join(found),
            "the settings of Spark": world.spark.sparkContext._jsc.sc().conf().toDebugString(),
            "the command lines of processes": "\n".join(command_lines()),
            **texts_of(Path(world.warehouse)),
            **texts_of(tmp_path),
        },
    )
    assert any(world.topic in text for text in texts_of(logged).values()), "the event log has the plans"


def check_no_secret(world: World, texts: Mapping[str, str]) -> None:
    for place, text in texts.items():
        for secret in world.server.secrets:
            assert secret not in text, f"{place} has a password"
            assert secret.replace("\\", "\\\\").replace('"', '\\"') not in text, f"{place} has a password"


def texts_of(folder: Path) -> dict[str, str]:
    return {str(path): path.read_bytes().decode(errors="replace") for path in folder.rglob("*") if path.is_file()}


def test_a_key_and_a_certificate_log_in(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    key = world.server.create_key()
    # The clients of a key use plain names; the topic belongs to its scope.
    assert main(["topic", "create", "invoices", *world.server.config(key)]) == DONE
    lake = ("pipeline", "lake", "--topic", "invoices", "--warehouse", world.warehouse, "--quiet", "--once")
    assert main([*lake, *world.server.config(key)]) == DONE
    assert "kwire.invoices: 0 rows added" in capsys.readouterr().out
    world.server.allow(world.topic, ["READ", "DESCRIBE_CONFIGS"], CERTIFICATE_USER)
    assert world.run("lake", user=CERTIFICATE_USER) == DONE
    assert world.rows() == LINES
    error = capsys.readouterr().err
    assert "the progress is not reported to the room kwire.jobs: TOPIC_AUTHORIZATION_FAILED" in error


@pytest.mark.parametrize(
    ("user", "reason"),
    [("wrong", "refused the login of user spark"), ("untrusting", "its certificate is not trusted")],
)
def test_a_wrong_password_and_an_unknown_certificate_end_a_job_at_once(
    server: SecuredLake, user: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for job, more in (("lake", ()), ("reconcile", ()), ("replay", ("--to", "t")), ("analytics", ())):
        words = ("--topic", "orders", "--warehouse", str(tmp_path), *more)
        assert main(["pipeline", job, *server.config(user), *words]) == CANNOT_RUN
        error = capsys.readouterr().err
        assert reason in error
        assert error.count("\n") == 1, error


def test_a_missing_login_is_named_for_each_port(
    server: SecuredLake, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only_kafka = tmp_path / "tls.properties"
    certificate = server.authority.client("nobody")
    only_kafka.write_text(
        f"security.protocol=SSL\nssl.truststore.location={server.authority.path}\n"
        f"ssl.keystore.location={certificate}\nbootstrap.servers={server.tls_address}\n"
    )
    words = ("--topic", "orders", "--warehouse", str(tmp_path), "--http", server.http_url)
    more = ("--cacert", str(server.authority.path))
    assert main(["pipeline", "lake", *words, *more, "--bootstrap-server", server.bootstrap]) == CANNOT_RUN
    assert "if it expects a login, add --user NAME" in capsys.readouterr().err
    assert main(["pipeline", "lake", *words, *more, "--command-config", str(only_kafka)]) == CANNOT_RUN
    error = capsys.readouterr().err
    assert f"{server.http_url} expects a login: add --user NAME, or set KWIRE_USER and KWIRE_PASSWORD" in error


def test_a_password_that_was_changed_is_named_by_a_running_job(server: SecuredLake) -> None:
    """After one attempt: the server refuses an address with ten of them."""
    before = server.failed_logins()
    options = job_options("reconcile", *server.config("wrong"), "--topic", "t", "--warehouse", "w")
    with pytest.raises(LoginRefused, match="refused the login of user spark"):
        TopicFactsReader(options.server).state("orders")
    assert server.failed_logins() == before + 1


@contextmanager
def event_log(spark: "SparkSession", directory: Path) -> Iterator[Path]:
    """Write Spark's event log, which its history server and its user interface show, while the block runs."""
    directory.mkdir()
    java: Any = spark._jvm
    context = spark.sparkContext._jsc.sc()
    conf = context.conf().clone().set("spark.eventLog.rolling.enabled", "false").set("spark.eventLog.compress", "false")
    log = java.org.apache.spark.scheduler.EventLoggingListener(
        "tests", java.scala.Option.empty(), java.java.net.URI(directory.as_uri()), conf, context.hadoopConfiguration()
    )
    log.start()
    context.addSparkListener(log)
    try:
        yield directory
    finally:
        context.listenerBus().waitUntilEmpty()
        context.removeSparkListener(log)
        log.stop()


def command_lines() -> Sequence[str]:
    """The command lines of all processes of this user, as `ps` shows them."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == os.getuid():
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # The process has ended.
    return found
