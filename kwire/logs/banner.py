"""The banner: what a person who starts the server wants to know, in a few lines.

At the first start, it also shows commands to try.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

from kwire.logs.start_report import ListenerReport, OpenToAll, Recovery, StartReport

_BOLD, _RESET = "\x1b[1m", "\x1b[0m"
_DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_PROGRAM = "kwire"


def banner(report: StartReport, seconds: float, *, has_colour: bool) -> str:
    """Return the lines of the banner."""
    title = f"kwire {report.version}"
    if has_colour:
        title = f"{_BOLD}{title}{_RESET}"
    lines = ["", f"  {title} is ready after {seconds:.2f} s", ""]
    lines.append(_row("data", _data_text(report)))
    if report.recovery.is_needed:
        lines.append(_row("", recovery_text(report.recovery)))
    for index, one in enumerate(report.listeners):
        lines.append(_row("" if index else "kafka", _listener_text(one)))
    if report.http_url is not None:
        lines.append(_row("http", f"{report.http_url} (the console; try the API at {report.http_url}/docs)"))
        lines.append(_row("metrics", f"{report.monitoring_url or report.http_url}/metrics"))
    if report.is_first_start:
        lines += ["", "  What to try next:", *(f"    {one}" for one in first_commands(report, program()))]
    return "\n".join([*lines, "", ""])


def program() -> str:
    """Return how a shell calls the program that runs: `kwire`, or its path if PATH does not lead to it."""
    path = Path(sys.argv[0])
    if path.name != _PROGRAM or not path.is_file():
        return _PROGRAM
    found = shutil.which(_PROGRAM)
    if found is not None and Path(found).samefile(path):
        return _PROGRAM
    inside = os.path.relpath(path)
    return shlex.quote(str(path) if inside.startswith("..") else inside)


def first_commands(report: StartReport, kwire: str = _PROGRAM) -> list[str]:
    """Return shell commands that work on a new server, or what to do before clients can connect to it.

    `kwire` is how the shell calls the program.
    """
    if report.needs_login:
        return [
            "Clients have to log in (docs/security.md). Stop the server, and create the first user:",
            f"{kwire} user create admin --data-dir {shlex.quote(report.data_dirs[0])}",
        ]
    if report.has_tls:
        return ["Clients connect with TLS (docs/security.md): give commands its settings with --command-config FILE."]
    option = "" if report.bootstrap == _DEFAULT_BOOTSTRAP else f" --bootstrap-server {report.bootstrap}"
    commands = [f"{kwire} topic create orders --partitions 3{option}"]
    if report.http_url is not None:
        event = '{"event_type": "hello", "data": {"text": "it works"}}'
        commands += [
            rf"curl -sw '\n' {report.http_url}/rooms/lobby/events -H 'Content-Type: application/json' -d '{event}'",
            f"curl -N '{report.http_url}/rooms/lobby/subscribe?from_offset=0'",
        ]
    return [*commands, f"{kwire} topic list{option}"]


def _row(name: str, text: str) -> str:
    return f"  {name:<9}{text}"


def _data_text(report: StartReport) -> str:
    if report.is_first_start:
        return f"{', '.join(report.data_dirs)} (new)"
    topics, partitions = counted(report.topic_count, "topic"), counted(report.partition_count, "partition")
    return f"{', '.join(report.data_dirs)} ({topics}, {partitions})"


def _listener_text(one: ListenerReport) -> str:
    notes = [] if one.address.startswith(f"{one.security_protocol}://") else [one.security_protocol]
    if one.advertised is not None:
        notes.append(f"advertised as {one.advertised}")
    return f"{one.address} ({', '.join(notes)})" if notes else one.address


def recovery_text(recovery: Recovery) -> str:
    """Return what the recovery after an unclean stop has done."""
    logs, topics = counted(recovery.log_count, "log"), counted(recovery.topic_count, "topic")
    return f"the last stop was not clean: {logs} of {topics} recovered in {recovery.seconds:.2f} s"


def open_to_all_text(opened: OpenToAll) -> str:
    """Return the warning that users exist, but nobody has to log in as one of them."""
    addresses, settings = " and ".join(opened.addresses), " and ".join(opened.settings)
    return f"users exist, but everybody may use {addresses} without a login: set {settings} (docs/security.md)"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 topic`, `1,234 topics`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
