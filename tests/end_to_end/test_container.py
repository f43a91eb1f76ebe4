"""The Containerfile and the compose file, without a container engine: their steps are run in roots of their own."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from kwire.config import InvalidConfig, load
from tests.support.containerfile import Stage, StageRoot, arguments_of, parse
from tests.support.server import wait_until

ROOT = Path(__file__).resolve().parents[2]
CONTAINER = ROOT / "scripts" / "container"
PRODUCE_AND_CONSUME = """
from kafka import KafkaConsumer, KafkaProducer
for address in ("kwire:29092", "localhost:9092"):
    producer = KafkaProducer(bootstrap_servers=address)
    producer.send("greetings", b"hello").get(30)
    producer.close()
consumer = KafkaConsumer("greetings", bootstrap_servers="kwire:29092", auto_offset_reset="earliest")
print([next(consumer).value for _ in range(2)])
"""


@pytest.fixture(scope="module")
def stages() -> list[Stage]:
    return parse(CONTAINER / "Containerfile")


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CONTAINER / "compose.yaml").read_text())["services"]["kwire"]
    return found


def environment_of(stage: Stage) -> dict[str, str]:
    return dict(one.split("=", 1) for rest in stage.all("ENV") for one in rest.split())


def test_the_image_runs_as_a_user_with_a_volume_and_a_health_check(stages: list[Stage]) -> None:
    image = stages[-1]
    assert image.last("USER") == "kwire"
    assert image.last("VOLUME") == environment_of(image)["KAFKA_LOG_DIRS"]
    assert "/readyz" in image.last("HEALTHCHECK")
    assert arguments_of(image.last("CMD")) == ["kwire", "serve"]
    # No instruction after USER could need more rights than the server has.
    words = [word for word, _ in image.instructions]
    assert "RUN" not in words[words.index("USER") :]


def test_every_copied_file_exists(stages: list[Stage]) -> None:
    copied = [rest.split() for stage in stages for rest in stage.all("COPY") if not rest.startswith("--from")]
    assert copied
    assert [name for *sources, _ in copied for name in sources if not (ROOT / name).exists()] == []


def test_the_image_serves_other_machines_only_with_logins_or_when_allowed(stages: list[Stage]) -> None:
    environment = environment_of(stages[-1])
    with pytest.raises(InvalidConfig, match=r"set kwire\.allow\.unauthenticated=true"):
        load(environment=environment)
    config = load(environment={**environment, "KWIRE_ALLOW_UNAUTHENTICATED": "true"})
    ports = [one.port for one in config.listeners] + [config.http.port if config.http else 0]
    assert [str(port) for port in ports] == stages[-1].last("EXPOSE").split()


def test_the_compose_file_has_a_listener_for_containers_and_one_for_this_machine(
    stages: list[Stage], service: dict[str, Any]
) -> None:
    config = load(environment={**environment_of(stages[-1]), **service["environment"]})
    assert [(one.name, one.port) for one in config.listeners] == [("INTERNAL", 29092), ("HOST", 9092)]
    advertised = {one.name: (one.host, one.port) for one in config.advertised_listeners}
    assert advertised == {"INTERNAL": ("kwire", 29092), "HOST": ("localhost", 9092)}
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["volumes"] == [f"data:{stages[-1].last('VOLUME')}"]
    assert (CONTAINER / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()


@pytest.mark.full("it installs everything twice: a minute")
@pytest.mark.needs_tmpfs
@pytest.mark.timeout(600)
def test_the_steps_of_the_image_make_a_server_that_is_healthy(
    stages: list[Stage], service: dict[str, Any], tmp_path: Path
) -> None:
    roots: dict[str, StageRoot] = {}
    try:
        for number, stage in enumerate(stages):
            root = roots[stage.name] = StageRoot(tmp_path / str(number), ROOT, roots)
            root.run_instructions(stage)
        image, root = stages[-1], roots[stages[-1].name]
        root.isolate_network(["kwire", "localhost"])
        health_check = root.command(arguments_of(image.last("HEALTHCHECK")))

        def is_healthy() -> bool:
            return subprocess.run(health_check, capture_output=True, timeout=60, check=False).returncode == 0

        assert not is_healthy()
        with subprocess.Popen(
            root.command(arguments_of(image.last("CMD")), service["environment"]), stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                wait_until(is_healthy, "the server is healthy")
                assert Path(f"/proc/{server.pid}/status").read_text().split("Uid:")[1].split()[0] == "10001"
                assert root.run(["python", "-c", PRODUCE_AND_CONSUME]).strip() == str([b"hello", b"hello"])
                metrics = root.run(
                    ["python", "-c", "import urllib.request as r; print(r.urlopen('http://kwire:8082/healthz').status)"]
                )
                assert json.loads(metrics) == 200
            finally:
                os.kill(server.pid, signal.SIGTERM)
            assert server.wait(60) == 0
        assert (root.outside / "var/lib/kwire").stat().st_uid == 10001
        assert any((root.outside / "var/lib/kwire").iterdir())
    finally:
        for root in roots.values():
            root.close()
