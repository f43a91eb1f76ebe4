"""kwire tls: certificates for development."""

import argparse
import os
from pathlib import Path

from kwire.cli.framework.parser import CommandParser, add_verb


class CannotCreate(ValueError):
    """The certificates were not created. The message says why."""


def add(parser: CommandParser) -> None:
    init = add_verb(
        parser.verbs(),
        "init",
        "make a CA, a server certificate and a client certificate for development",
        init_certificates,
        description=(
            "Make a CA, a server certificate for the given hosts and a client certificate for development, and print\n"
            "the settings of the server and of clients. Existing files are never overwritten."
        ),
    )
    init.add_argument("--dir", metavar="DIR", type=Path, required=True, help="folder for the files; it is made")
    init.add_argument(
        "--client-name", metavar="NAME", default="client", help="common name of the client certificate (client)"
    )
    init.add_argument("--days", metavar="N", type=int, default=365, help="days until the certificates expire (365)")
    init.add_argument("hosts", metavar="HOST", nargs="+", help="host name or address by which clients reach the server")


def init_certificates(options: argparse.Namespace) -> None:
    # cryptography takes long to import, and only this subcommand needs it.
    from kwire.cli.tls.files import make_certificates

    if options.days < 1:
        raise CannotCreate(f"--days must be at least 1, got {options.days}")
    directory: Path = options.dir
    paths = {name: directory / name for name in ("ca.pem", "ca-key.pem", "server.pem", "client.pem")}
    existing = [str(path) for path in paths.values() if path.exists()]
    if existing:
        raise CannotCreate(f"{', '.join(existing)} exists and is not overwritten; use another --dir, or delete it")
    try:
        files = make_certificates(options.hosts, options.client_name, options.days)
    except ValueError as error:
        raise CannotCreate(str(error)) from None
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name, content in files.items():
        _write(paths[name], content)
    print(_settings(directory.resolve(), options.hosts[0]))


def _write(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read. Fails if the file exists."""
    mode = 0o644 if path.name == "ca.pem" else 0o600
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with open(descriptor, "wb") as file:
        file.write(content)


def _settings(directory: Path, host: str) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"""\
Certificates are in {directory}. They are for development: the key of the CA is on this machine.

# Server: server.properties. ssl.client.auth=required makes every client present a certificate.
listeners=SSL://{shown}:9093
ssl.keystore.type=PEM
ssl.keystore.location={directory}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={directory}/ca.pem
ssl.client.auth=required
# https on the HTTP port
kwire.http.tls=true

# Java clients: client.properties
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location={directory}/ca.pem
ssl.keystore.type=PEM
ssl.keystore.location={directory}/client.pem

# librdkafka, confluent-kafka, kcat (-X name=value)
bootstrap.servers={shown}:9093
security.protocol=ssl
ssl.ca.location={directory}/ca.pem
ssl.certificate.location={directory}/client.pem
ssl.key.location={directory}/client.pem

# Python, kafka-python
KafkaProducer(
    bootstrap_servers="{shown}:9093",
    security_protocol="SSL",
    ssl_cafile="{directory}/ca.pem",
    ssl_certfile="{directory}/client.pem",
)

# curl
curl --cacert {directory}/ca.pem --cert {directory}/client.pem https://{shown}:8082/healthz"""
