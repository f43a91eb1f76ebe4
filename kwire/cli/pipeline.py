"""kwire pipeline: Spark jobs on the topics and rooms of a running server.

The jobs import nothing of this program. They are given a `Server` with everything that they need to connect and log in.
"""

import argparse
import os
from contextlib import closing
from functools import partial

from kwire.cli.connection.errors import LoginRefused, Unreachable
from kwire.cli.connection.http_client import HttpClient
from kwire.cli.connection.kafka_client import KafkaClient
from kwire.cli.connection.options import add_connection_options, source_of_options
from kwire.cli.connection.settings import (
    PASSWORD_VARIABLE,
    USER_VARIABLE,
    ClientSettings,
    HttpSettings,
    http_settings,
    kafka_settings,
)
from kwire.cli.framework.parser import CommandParser, Entry
from kwire.kafka_client.login import Login
from kwire.pipeline import jobs, server


def add(parser: CommandParser) -> None:
    listed = {
        name: Entry(job.purpose, job.module, "add_arguments", add_connection_options if job.uses_server else None)
        for name, job in jobs.JOBS.items()
    }
    parser.add_entries("job", {"jobs": listed})
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    if jobs.JOBS[options.job].uses_server:
        options.server = server_of(options)
    return jobs.run(options)


def server_of(options: argparse.Namespace) -> server.Server:
    """Return the server of a job. Raises UsageError."""
    source = source_of_options(options)
    kafka = kafka_settings(source, os.environ, bootstrap_server=options.bootstrap_server, user=options.user)
    environment = dict(os.environ)
    if kafka.login is not None:
        # The password is asked for once.
        environment |= {USER_VARIABLE: kafka.login.user, PASSWORD_VARIABLE: kafka.login.password}
    http = http_settings(source, environment, url=options.http, user=options.user, ca_file=options.cacert)
    tls = None
    if kafka.tls is not None:
        # Imported here, because it takes long.
        from kwire.cli.connection.tls import pem_text

        pem = pem_text(source.given)
        tls = server.Tls(kafka.tls, pem.trusted, pem.certificate_chain, pem.key)
    return server.Server(
        kafka.bootstrap_server,
        http.url if "://" in http.url else f"http://{http.url}",
        kafka.protocol,
        kafka.mechanism,
        _login(kafka.login),
        tls,
        _login(http.login),
        http.tls,
        partial(_connect, kafka, http),
    )


def _login(login: Login | None) -> server.Login | None:
    return None if login is None else server.Login(login.user, login.password)


def _connect(kafka: ClientSettings, http: HttpSettings, uses_http: bool) -> None:
    """Connect to both ports and log in. Raises Unreachable, LoginRefused, or UsageError."""
    with closing(KafkaClient(kafka)) as kafka_client:
        # A port that expects a login accepts the connection without it, and closes it at the first request.
        kafka_client.metadata([])
    if not uses_http:
        return
    with closing(HttpClient(http)) as client:
        session = client.request("GET", "/session")
    if not isinstance(session, dict) or "login_needed" not in session:
        raise Unreachable(f"{http.url} is not a kwire server: its answer has another format")
    if session["login_needed"] and session["principal"] is None:
        raise LoginRefused(
            f"{http.url} expects a login: add --user NAME, or set {USER_VARIABLE} and {PASSWORD_VARIABLE}"
        )
