"""A real Prometheus with the configuration and the rules of docs/monitoring, and promtool.

The configuration is the one that users get, with the addresses of the test, an interval of a second, and alerts that
fire as soon as their condition holds.
"""

import asyncio
import json
import math
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import aiohttp
import yaml

from kwire.testing.ports import unused_port
from tests.support.server import HOST, STOP_TIMEOUT_S

DOCS = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
INTERVAL = "1s"
# The range of rates, in place of Grafana's variable. It has several scrapes.
RATE_RANGE = "5s"
START_TIMEOUT_S = 30.0
POLL_INTERVAL_S = 0.1
PROMTOOL_TIMEOUT_S = 60


def rules() -> Any:
    return yaml.safe_load((DOCS / "alerts.yml").read_text(encoding="utf-8"))


def alert_names() -> list[str]:
    return [rule["alert"] for group in rules()["groups"] for rule in group["rules"]]


def dashboard() -> Any:
    return json.loads((DOCS / "dashboard.json").read_text(encoding="utf-8"))


def dashboard_expressions() -> list[str]:
    """All expressions of the dashboard, for all servers."""
    texts = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    return [text.replace("$instance", ".*").replace("$__rate_interval", RATE_RANGE) for text in texts]


def promtool(*arguments: object) -> str:
    done = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=PROMTOOL_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


class Prometheus:
    """A process of Prometheus, for `async with`. `targets` are the addresses by the names of the jobs."""

    def __init__(self, directory: Path, targets: Mapping[str, Sequence[str]]) -> None:
        self._directory = directory
        self._targets = targets
        self._port = unused_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._directory.mkdir(parents=True)
        self._write("prometheus.yml", self._configuration())
        self._write("alerts.yml", _immediate(rules()))
        command = [
            "prometheus",
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address={HOST}:{self._port}",
            "--log.level=warn",
        ]
        with (self._directory / "output").open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        self._session = aiohttp.ClientSession(f"http://{HOST}:{self._port}")
        async with asyncio.timeout(START_TIMEOUT_S):
            while not await self._is_ready():
                await asyncio.sleep(POLL_INTERVAL_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._session is not None
        await self._session.close()
        self._process.terminate()
        self._process.wait(STOP_TIMEOUT_S)

    def _configuration(self) -> Any:
        configuration = yaml.safe_load((DOCS / "prometheus.yml").read_text(encoding="utf-8"))
        configuration["global"] = {"scrape_interval": INTERVAL, "evaluation_interval": INTERVAL}
        jobs = {job["job_name"]: job for job in configuration["scrape_configs"]}
        assert set(jobs) == set(self._targets)
        for name, addresses in self._targets.items():
            jobs[name]["static_configs"] = [{"targets": list(addresses)}]
        return configuration

    def _write(self, name: str, content: Any) -> None:
        (self._directory / name).write_text(yaml.safe_dump(content), encoding="utf-8")

    async def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._session is not None
        assert self._process.poll() is None, (self._directory / "output").read_text()
        try:
            async with self._session.get("/-/ready") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def _get(self, path: str, **parameters: str) -> Any:
        assert self._session is not None
        async with self._session.get(f"/api/v1/{path}", params=parameters) as answer:
            body = await answer.json()
            assert answer.status == 200, body
            return body["data"]

    async def values(self, expression: str) -> list[float]:
        """The values of an expression now, without those that are no numbers."""
        found = (await self._get("query", query=expression))["result"]
        values = [float(one["value"][1]) for one in found]
        return [value for value in values if not math.isnan(value)]

    async def until_values(self, expressions: Collection[str], timeout_s: float) -> None:
        """Wait until each of the expressions has a value."""
        left = dict.fromkeys(expressions)
        try:
            async with asyncio.timeout(timeout_s):
                while left:
                    for expression in list(left):
                        if await self.values(expression):
                            del left[expression]
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            raise AssertionError("no values within the time:\n" + "\n".join(left)) from None

    async def firing(self) -> set[str]:
        alerts = (await self._get("alerts"))["alerts"]
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    async def until_firing(self, names: Collection[str], timeout_s: float) -> None:
        left = set(names)
        try:
            async with asyncio.timeout(timeout_s):
                while left:
                    left -= await self.firing()
                    await asyncio.sleep(POLL_INTERVAL_S)
        except TimeoutError:
            raise AssertionError(f"these alerts do not fire: {', '.join(sorted(left))}") from None


def _immediate(content: Any) -> Any:
    """The rules without the time for which a condition has to hold."""
    for group in content["groups"]:
        for rule in group["rules"]:
            rule.pop("for", None)
    return content


class RuleCase(NamedTuple):
    """The series of an alert, one value per minute, and the minute at which the alert fires. It does not fire at 0."""

    series: Mapping[str, str]
    minute: int = 30


def rule_tests(cases: Mapping[str, RuleCase]) -> Any:
    """The content of a file for `promtool test rules`."""
    return {
        "rule_files": [str(DOCS / "alerts.yml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "name": name,
                "interval": "1m",
                "input_series": [{"series": one, "values": values} for one, values in case.series.items()],
                "promql_expr_test": [_expectation(name, 0, 0), _expectation(name, case.minute, 1)],
            }
            for name, case in cases.items()
        ],
    }


def _expectation(name: str, minute: int, count: int) -> Any:
    firing = f'count(ALERTS{{alertname="{name}", alertstate="firing"}})'
    samples = [{"labels": "{}", "value": count}] if count else []
    return {"expr": firing, "eval_time": f"{minute}m", "exp_samples": samples}
