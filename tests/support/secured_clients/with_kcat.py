"""kcat, one process per call. It ends with an error if it loses all connections."""

import subprocess
from collections.abc import Sequence

from tests.support.secured_clients.interface import CLIENT_TIMEOUT_S, COMMIT_INTERVAL_MS, Refusal, refusal_in
from tests.support.secured_clients.login import Login

REPORTED = {
    Refusal.RIGHT: "Topic authorization failed",
    Refusal.LOGIN: "SASL authentication error|Authentication failed",
    Refusal.CERTIFICATE: "certificate verify failed|alert unknown ca",
}


class WithKcat:
    name = "kcat"

    def produce(self, login: Login, topic: str, values: Sequence[bytes]) -> None:
        kcat(login, "-P", "-t", topic, stdin=b"".join(value + b"\n" for value in values))

    def read_group(self, login: Login, topic: str, group: str, count: int) -> list[bytes]:
        settings = (
            "auto.offset.reset=earliest",
            f"auto.commit.interval.ms={COMMIT_INTERVAL_MS}",
            # A process that lost its connections cannot leave the group; the next one waits until its session is over.
            "session.timeout.ms=2000",
            "heartbeat.interval.ms=300",
        )
        options = [word for setting in settings for word in ("-X", setting)]
        return kcat(login, *options, "-c", str(count), "-G", group, topic).splitlines()


def kcat(login: Login, *arguments: str, stdin: bytes = b"") -> bytes:
    """What kcat wrote to standard output."""
    options = [word for name, value in login.librdkafka().items() for word in ("-X", f"{name}={value}")]
    done = subprocess.run(
        ["kcat", *options, *arguments], input=stdin, capture_output=True, timeout=CLIENT_TIMEOUT_S, check=False
    )
    if done.returncode != 0:
        report = done.stderr.decode()
        raise refusal_in(report, REPORTED) or AssertionError(f"kcat {arguments} ended with {done.returncode}: {report}")
    return done.stdout
