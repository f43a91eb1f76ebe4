"""The server of a job: its addresses, logins and certificates, in the form that each of the job's clients takes.

The jobs have four clients: Spark's Kafka connector (Java), kafka-python, the Python client of kwire, and requests for
JSON. The command line resolves the options, the environment and the profile to a `Server`, because the pipeline imports
nothing of it.
"""

import json
import ssl
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from kwire.client import Client

PLAINTEXT = "PLAINTEXT"
PEM = "PEM"
REQUEST_TIMEOUT_S = 30.0
ANSWER_BYTES_MAX = 64 * 1024 * 1024
_KAFKA_CLASSES = "org.apache.kafka.common.security"
_SCRAM_MODULE = f"{_KAFKA_CLASSES}.scram.ScramLoginModule"
_LOGIN_MODULES = {
    "PLAIN": f"{_KAFKA_CLASSES}.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM_MODULE,
    "SCRAM-SHA-512": _SCRAM_MODULE,
}


@dataclass(frozen=True, slots=True)
class Login:
    """A user and its password, or the id and the secret of an API key."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS of the Kafka port. Java takes certificates and keys as PEM, and Python as a context.

    `trusted` is None if the certificates of the system are trusted. `certificate_chain` and `key` are those of a client
    certificate; the key is PKCS#8 without a password.
    """

    context: ssl.SSLContext
    trusted: str | None = None
    certificate_chain: str | None = None
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Server:
    """The server of a job. `http_tls` is None for http URLs, and for https with the certificates of the system."""

    bootstrap: str
    http: str
    protocol: str = PLAINTEXT
    mechanism: str = "SCRAM-SHA-512"
    login: Login | None = None
    tls: Tls | None = None
    http_login: Login | None = None
    http_tls: ssl.SSLContext | None = None
    # Connects to the Kafka port and logs in, and to the HTTP port, too, if the argument is true. Raises an OSError or a
    # ValueError whose message names the remedy.
    connect: Callable[[bool], None] | None = None

    @property
    def user(self) -> str:
        """The name of the client in messages about missing rights."""
        login = self.login or self.http_login
        return f"user {login.user}" if login else "this client"

    def check(self, *, uses_http: bool = True) -> None:
        """Connect and log in once, so that a wrong address or password is reported before Spark is started."""
        if self.connect is not None:
            self.connect(uses_http)

    def spark_options(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source and sink.

        Certificates are passed as text, because the executors of a cluster do not have the files of the driver.
        """
        options = {"kafka.bootstrap.servers": self.bootstrap}
        if self.protocol == PLAINTEXT:
            return options
        options["kafka.security.protocol"] = self.protocol
        if self.login is not None:
            options["kafka.sasl.mechanism"] = self.mechanism
            options["kafka.sasl.jaas.config"] = jaas_config(self.mechanism, self.login)
        if self.tls is not None:
            if not self.tls.context.check_hostname:
                options["kafka.ssl.endpoint.identification.algorithm"] = ""
            if self.tls.trusted is not None:
                options["kafka.ssl.truststore.type"] = PEM
                options["kafka.ssl.truststore.certificates"] = self.tls.trusted
            if self.tls.key is not None and self.tls.certificate_chain is not None:
                options["kafka.ssl.keystore.type"] = PEM
                options["kafka.ssl.keystore.key"] = self.tls.key
                options["kafka.ssl.keystore.certificate.chain"] = self.tls.certificate_chain
        return options

    def kafka_python_options(self) -> dict[str, Any]:
        """Return the options of kafka-python's clients."""
        options: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.login is not None:
            options["sasl_mechanism"] = self.mechanism
            options["sasl_plain_username"] = self.login.user
            options["sasl_plain_password"] = self.login.password
        if self.tls is not None:
            options["ssl_context"] = self.tls.context
        return options

    def client(self, timeout_s: float = REQUEST_TIMEOUT_S) -> "Client":
        """Return a client for rooms."""
        # Imported here, because it takes long, and `kwire pipeline --help` does not need it.
        from kwire.client import Client

        login = self.http_login
        return Client(
            self.http,
            timeout_s=timeout_s,
            user=None if login is None else login.user,
            password="" if login is None else login.password,
            ssl_context=self.http_tls,
        )

    def get(self, path: str) -> tuple[int, Any]:
        """Send a GET to the HTTP port. Return the status and the JSON of the answer, None if it is not JSON.

        Raises OSError or HTTPException if there is no answer.
        """
        url = urlsplit(self.http)
        address = (url.hostname or "", url.port)
        connection = (
            HTTPSConnection(*address, timeout=REQUEST_TIMEOUT_S, context=self.http_tls or ssl.create_default_context())
            if url.scheme == "https"
            else HTTPConnection(*address, timeout=REQUEST_TIMEOUT_S)
        )
        headers = {"Accept": "application/json"}
        if self.http_login is not None:
            pair = f"{self.http_login.user}:{self.http_login.password}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        try:
            connection.request("GET", url.path.rstrip("/") + path, headers=headers)
            answer = connection.getresponse()
            content = answer.read(ANSWER_BYTES_MAX + 1)
        finally:
            connection.close()
        if len(content) > ANSWER_BYTES_MAX:
            raise HTTPException(f"the answer is longer than {ANSWER_BYTES_MAX} bytes")
        try:
            return answer.status, json.loads(content)
        except ValueError:
            return answer.status, None


def jaas_config(mechanism: str, login: Login) -> str:
    """Return a login in the format of Java's login modules."""
    return f"{_LOGIN_MODULES[mechanism]} required username={_quoted(login.user)} password={_quoted(login.password)};"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
