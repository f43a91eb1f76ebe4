"""A server with TLS, logins and ACLs on both ports, and the files with which jobs of Spark log in to it."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kwire.testing.ports import unused_port
from tests.support.access_commands import run_with_password, succeeded
from tests.support.certificates import Authority
from tests.support.cli import Done, run_here
from tests.support.server import HOST, KwireProcess

ADMIN, USER, CERTIFICATE_USER = "admin", "spark", "cert"
SCOPE = "acme"


def password_of(user: str) -> str:
    """A password with characters that Java's and HTTP's formats treat in a special way."""
    return f'pass"word\\of {user}; ='


class SecuredLake:
    """The process. `config(user)` is a file of --command-config for each of its logins."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.authority = Authority(directory)
        self._sasl, self._tls = unused_port(), unused_port()
        self.process = KwireProcess(
            directory / "kwire",
            kafka_port=None,
            settings={
                "listeners": f"SASL_SSL://{HOST}:{self._sasl},SSL://{HOST}:{self._tls}",
                "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.authority.server()),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.path),
                "listener.name.ssl.ssl.client.auth": "required",
                "listener.name.http.ssl.client.auth": "requested",
                "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
                "kwire.authorizer": "acl",
                "kwire.http.tls": "true",
                "kwire.http.authentication": "basic,key,certificate",
            },
        )
        self.secrets: list[str] = []
        for user, role in ((ADMIN, ("--role", "admin")), (USER, ())):
            done = run_with_password(
                password_of(user), "user", "create", user, *role, "--data-dir", self.process.data_dir
            )
            succeeded(done)
            self.secrets.append(password_of(user))
            self._save(user, self._with_login(user, password_of(user)))
        self._save("wrong", self._with_login(USER, "wrong-password"))
        self._save("untrusting", {**self._with_login(USER, password_of(USER)), "ssl.truststore.location": ""})
        key_store = self.authority.client(CERTIFICATE_USER)
        certificate = {"bootstrap.servers": self.tls_address, "security.protocol": "SSL"}
        self._save(CERTIFICATE_USER, {**self._common(), **certificate, "ssl.keystore.location": str(key_store)})

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self._sasl}"

    @property
    def tls_address(self) -> str:
        """The address for clients with a certificate."""
        return f"{HOST}:{self._tls}"

    @property
    def http_url(self) -> str:
        return self.process.http_url.replace("http:", "https:")

    def config(self, user: str) -> tuple[str, str]:
        return "--command-config", str(self._directory / f"{user}.properties")

    def create_key(self) -> str:
        """Create a key of a scope. Returns the name of its file."""
        key = json.loads(succeeded(self.admin("key", "create", "--scope", SCOPE, "-o", "json")))
        self.secrets.append(key["secret"])
        self._save("key", self._with_login(key["id"], key["secret"], mechanism="PLAIN"))
        return "key"

    def admin(self, *words: str) -> Done:
        return run_here(*words, *self.config(ADMIN))

    def failed_logins(self) -> int:
        return self.process.stderr_path.read_text().count(f"login of user '{USER}' failed")

    def allow(self, topic: str, operations: Sequence[str], user: str = USER) -> None:
        if operations:
            listed = ",".join(operations).lower()
            succeeded(self.admin("acl", "add", "--principal", f"User:{user}", "--allow", listed, "--topic", topic))

    def forbid(self, topic: str, operation: str, user: str = USER) -> None:
        who = ("--principal", f"User:{user}", "--topic", topic)
        succeeded(self.admin("acl", "delete", "--yes", *who, "--allow", operation.lower()))

    def produce(self, topic: str, values: Sequence[str | bytes]) -> None:
        path = self._directory / "lines"
        path.write_bytes(b"".join((one if isinstance(one, bytes) else one.encode()) + b"\n" for one in values))
        succeeded(self.admin("topic", "produce", topic, "--file", str(path)))

    def _common(self) -> dict[str, str]:
        return {"kwire.http": self.http_url, "ssl.truststore.location": str(self.authority.path)}

    def _with_login(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, str]:
        return {
            **self._common(),
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password.replace("\\", "\\\\"),
        }

    def _save(self, name: str, settings: dict[str, str]) -> None:
        lines = [f"{key}={value}\n" for key, value in settings.items() if value]
        (self._directory / f"{name}.properties").write_text("".join(lines))


@contextmanager
def running_secured_lake(directory: Path) -> Iterator[SecuredLake]:
    server = SecuredLake(directory)
    server.process.start()
    try:
        server.process.ready()
        yield server
        assert server.process.stop() == 0
    finally:
        server.process.kill()
