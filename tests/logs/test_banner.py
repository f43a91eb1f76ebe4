"""The banner: what it shows of a start, and what it proposes at the first one."""

import sys
from pathlib import Path

import pytest

from kwire.logs.banner import banner, first_commands, program
from kwire.logs.start_report import ListenerReport, Recovery, StartReport

REPORT = StartReport(
    version="1.2.3",
    data_dirs=("/var/lib/kwire",),
    is_first_start=False,
    topic_count=1,
    partition_count=1200,
    recovery=Recovery(is_needed=False),
    listeners=(ListenerReport("PLAINTEXT://0.0.0.0:9092", "PLAINTEXT"),),
    bootstrap="127.0.0.1:9092",
    http_url="http://127.0.0.1:8082",
    monitoring_url=None,
    needs_login=False,
    has_tls=False,
)


def shown(report: StartReport) -> str:
    return banner(report, 0.4321, has_colour=False)


def test_it_shows_version_data_listeners_and_urls() -> None:
    assert shown(REPORT) == (
        "\n"
        "  kwire 1.2.3 is ready after 0.43 s\n"
        "\n"
        "  data     /var/lib/kwire (1 topic, 1,200 partitions)\n"
        "  kafka    PLAINTEXT://0.0.0.0:9092\n"
        "  http     http://127.0.0.1:8082 (the console; try the API at http://127.0.0.1:8082/docs)\n"
        "  metrics  http://127.0.0.1:8082/metrics\n"
        "\n"
    )


def test_it_shows_what_was_recovered() -> None:
    recovered = REPORT._replace(recovery=Recovery(True, 2, 7, 1.5))
    assert "the last stop was not clean: 7 logs of 2 topics recovered in 1.50 s" in shown(recovered)


def test_it_shows_protocols_and_advertised_addresses_that_the_listener_does_not_name() -> None:
    listeners = (
        ListenerReport("SSL://0.0.0.0:9093", "SSL", "kafka.example:443"),
        ListenerReport("INSIDE://10.0.0.1:9094", "SASL_SSL"),
    )
    text = shown(REPORT._replace(listeners=listeners, http_url=None))
    assert "  kafka    SSL://0.0.0.0:9093 (advertised as kafka.example:443)\n" in text
    assert "           INSIDE://10.0.0.1:9094 (SASL_SSL)\n" in text
    assert "http" not in text


def test_the_metrics_are_where_they_are_served() -> None:
    assert "  metrics  http://127.0.0.1:9644/metrics\n" in shown(
        REPORT._replace(monitoring_url="http://127.0.0.1:9644")
    )


def test_only_the_first_start_proposes_commands() -> None:
    assert "What to try next" not in shown(REPORT)
    first = REPORT._replace(is_first_start=True)
    assert "/var/lib/kwire (new)\n" in shown(first)
    for command in first_commands(first):
        assert f"    {command}\n" in shown(first)


def test_commands_name_an_address_that_is_not_the_default() -> None:
    assert not any("--bootstrap" in one for one in first_commands(REPORT))
    assert any(
        "--bootstrap-server 127.0.0.1:1234" in one
        for one in first_commands(REPORT._replace(bootstrap="127.0.0.1:1234"))
    )


def test_a_server_with_logins_proposes_a_user() -> None:
    text = shown(REPORT._replace(is_first_start=True, needs_login=True, data_dirs=("/my data",)))
    assert "kwire user create admin --data-dir '/my data'" in text
    assert "curl" not in text


def test_a_server_with_tls_proposes_no_command_that_would_fail() -> None:
    text = shown(REPORT._replace(is_first_start=True, has_tls=True))
    assert "TLS" in text
    assert "curl" not in text


def test_colour_is_only_where_it_is_wanted() -> None:
    assert "\x1b" not in shown(REPORT)
    assert "\x1b[1m" in banner(REPORT, 1.0, has_colour=True)


def test_commands_name_the_program_as_the_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / ".venv" / "bin" / "kwire"
    installed.parent.mkdir(parents=True)
    installed.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(installed), "serve"])
    monkeypatch.setenv("PATH", "/usr/bin")
    monkeypatch.chdir(tmp_path)
    assert program() == ".venv/bin/kwire"
    assert first_commands(REPORT, program())[0].startswith(".venv/bin/kwire topic create ")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert program() == str(installed)
    monkeypatch.setenv("PATH", f"{installed.parent}:/usr/bin")
    assert program() == "kwire"
