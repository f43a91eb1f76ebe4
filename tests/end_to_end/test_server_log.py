"""The server's own words: the banner, the lines about start, recovery, changes and stop, and both formats."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from kwire.testing import ServerFailed
from tests.support.clients_raw import RawConnection
from tests.support.server import HOST, KwireProcess, wait_until

COMMAND_S_MAX = 30
LINE = re.compile(r"(?P<time>\S+) (?P<level>[A-Z]+) (?P<logger>[\w.]+): (?P<message>.*)")


@pytest.fixture
def make_server(tmp_path: Path) -> Any:
    made: list[KwireProcess] = []

    def make(*arguments: str, **options: Any) -> KwireProcess:
        made.append(KwireProcess(tmp_path / str(len(made)), arguments=arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def log_of(server: KwireProcess) -> str:
    return server.stderr_path.read_text()


def objects_of(server: KwireProcess) -> list[dict[str, Any]]:
    """The lines of a log in JSON. Each must be one object with the fields that every line has."""
    found = [json.loads(line) for line in log_of(server).splitlines()]
    for one in found:
        assert datetime.fromisoformat(one["time"]).tzinfo is not None
        assert {"level", "logger", "message"} <= one.keys()
    return found


def one_with(lines: list[dict[str, Any]], text: str) -> dict[str, Any]:
    (found,) = [one for one in lines if text in one["message"]]
    return found


def test_the_banner_of_a_first_start_proposes_commands_that_work(make_server: Any) -> None:
    server = make_server()
    server.restart()
    text = log_of(server)
    assert re.search(r"^  kwire \S+ is ready after \d+\.\d\d s$", text, re.MULTILINE)
    assert f"  data     {server.data_dir} (new)\n" in text
    assert f"  kafka    PLAINTEXT://{HOST}:{server.kafka_port}\n" in text
    assert f"  http     {server.http_url} (" in text
    assert "not clean" not in text
    commands = text.partition("  What to try next:\n")[2].rstrip().splitlines()
    assert len(commands) == 4
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in map(str.strip, commands):
        with subprocess.Popen(["bash", "-c", f"exec {command}"], stdout=subprocess.PIPE, env=environment) as program:
            assert program.stdout is not None
            if "subscribe" in command:
                # It follows the room until it is ended.
                printed = program.stdout.readline()
                program.terminate()
            else:
                printed, _ = program.communicate(timeout=COMMAND_S_MAX)
                assert program.returncode == 0, command
            assert printed, command
    assert b"orders" in printed


def test_the_log_tells_changes_with_their_clients_and_the_stop_with_its_reason(make_server: Any) -> None:
    server = make_server()
    server.restart()
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap)
    admin.create_topics([NewTopic("orders", 3, 1)])
    admin.delete_topics(["orders"])
    admin.close()
    with RawConnection(server.kafka_address):
        server.stop()
    lines = [found for line in log_of(server).splitlines() if (found := LINE.fullmatch(line))]
    assert all(datetime.fromisoformat(one["time"]).tzinfo is not None for one in lines)
    changes = [one["message"] for one in lines if one["logger"] == "kwire.changes"]
    assert changes == [
        f"topic orders: created by User:ANONYMOUS from {HOST} (kafka), partitions=3",
        f"topic orders: deleted by User:ANONYMOUS from {HOST} (kafka)",
    ]
    messages = [one["message"] for one in lines]
    assert re.fullmatch(r"kwire \S+ starts: process \d+, Python \S+, data in \S+", messages[0])
    assert re.fullmatch(r"stopping because of SIGTERM: \d+ Kafka and 0 HTTP connections are open", messages[-2])
    assert re.fullmatch(r"stopped in \d+\.\d\d s after running for \d+ s.*", messages[-1])


def test_a_start_after_a_crash_tells_what_was_recovered(make_server: Any) -> None:
    server = make_server()
    server.restart()
    producer = KafkaProducer(bootstrap_servers=server.bootstrap)
    producer.send("greetings", b"hello").get(COMMAND_S_MAX)
    producer.close()
    server.kill()
    before = len(log_of(server))
    server.restart()
    text = log_of(server)[before:]
    assert re.search(r"the last stop was not clean: \d+ logs? of \d+ topics? recovered in \d+\.\d\d s", text)
    assert "(1 topic, 1 partition)" in text
    assert "What to try next" not in text
    server.stop()
    before = len(log_of(server))
    server.restart()
    assert "not clean" not in log_of(server)[before:]


def test_every_line_is_one_object_with_the_format_json(make_server: Any) -> None:
    server = make_server("--log-format", "json", "--log-level", "DEBUG")
    server.restart()
    lines = objects_of(server)
    ready = one_with(lines, "ready")
    assert (ready["http_url"], ready["bootstrap"]) == (server.http_url, server.bootstrap)
    assert ready["data_dirs"] == [str(server.data_dir)]
    assert (ready["is_first_start"], ready["recovery"]["is_needed"]) == (True, False)
    assert server.ready_line.startswith("ready kafka=")
    with RawConnection(server.kafka_address) as connection:
        connection.send_bytes(b"\x7f\xff\xff\xff")
        wait_until(lambda: "closing the connection" in log_of(server), "the frame is refused")
    refused = one_with(objects_of(server), "closing the connection")
    assert isinstance(refused["connection"], int)
    server.kill()
    before = len(log_of(server).splitlines())
    server.restart()
    assert one_with(objects_of(server)[before:], "the last stop was not clean")["level"] == "WARNING"
    os.kill(server.pid, signal.SIGINT)
    assert server.exit_code() == 0
    assert one_with(objects_of(server)[before:], "stopping because of SIGINT")


@pytest.mark.parametrize(("port", "log_format"), [("kafka", "text"), ("http", "json")])
def test_a_listener_that_cannot_be_opened_is_named_with_a_remedy(make_server: Any, port: str, log_format: str) -> None:
    with socket.create_server((HOST, 0)) as taken:
        number = taken.getsockname()[1]
        server = make_server("--log-format", log_format, **{f"{port}_port": number})
        server.start()
        with pytest.raises(ServerFailed):
            server.ready()
    name = f"PLAINTEXT://{HOST}:{number}" if port == "kafka" else f"HTTP {HOST}:{number}"
    expected = (
        f"cannot start: listener {name} cannot be opened: the address is in use; stop the program that uses it, or "
        f"choose another port with --{port} or "
    )
    assert expected in log_of(server)
    assert "Traceback" not in log_of(server)
    if log_format == "json":
        assert objects_of(server)[-1]["level"] == "CRITICAL"
