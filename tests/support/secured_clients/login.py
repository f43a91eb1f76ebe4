"""What a client needs to connect: an address, a protocol, a login, certificates; in the form of each client."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.certificates import pkcs8


@dataclass(frozen=True)
class Login:
    """The settings of a connection. Without a mechanism, the certificate in `key_store`, if any, is the login."""

    bootstrap: str
    protocol: str
    mechanism: str | None = None
    user: str = ""
    password: str = ""
    ca: Path | None = None
    key_store: Path | None = None
    # How long kafka-python tries to connect. It reports a refused connection only after this time.
    connect_timeout_s: float = 30.0

    def librdkafka(self) -> dict[str, str]:
        """For confluent-kafka and kcat."""
        settings = {"bootstrap.servers": self.bootstrap, "security.protocol": self.protocol}
        if self.mechanism is not None:
            settings |= {
                "sasl.mechanism": self.mechanism,
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        if self.ca is not None:
            settings["ssl.ca.location"] = str(self.ca)
        if self.key_store is not None:
            settings |= {"ssl.certificate.location": str(self.key_store), "ssl.key.location": str(self.key_store)}
        return settings

    def keywords(self) -> dict[str, Any]:
        """For kafka-python and aiokafka, without the settings of TLS, which differ."""
        keywords: dict[str, Any] = {"bootstrap_servers": self.bootstrap, "security_protocol": self.protocol}
        if self.mechanism is not None:
            keywords |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.user,
                "sasl_plain_password": self.password,
            }
        return keywords

    def tls_context(self) -> ssl.SSLContext | None:
        """For aiokafka."""
        if self.ca is None:
            return None
        context = ssl.create_default_context(cafile=str(self.ca))
        if self.key_store is not None:
            context.load_cert_chain(self.key_store)
        return context

    def write_properties(self, directory: Path) -> Path:
        """Write the file for Kafka's tools, which read only PKCS#8 keys."""
        lines = [f"security.protocol={self.protocol}"]
        if self.mechanism is not None:
            module = "plain.PlainLoginModule" if self.mechanism == "PLAIN" else "scram.ScramLoginModule"
            lines += [
                f"sasl.mechanism={self.mechanism}",
                f"sasl.jaas.config=org.apache.kafka.common.security.{module} required "
                f'username="{self.user}" password="{self.password}";',
            ]
        if self.ca is not None:
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.ca}"]
        if self.key_store is not None:
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={pkcs8(self.key_store)}"]
        path = directory / "client.properties"
        path.write_text("\n".join([*lines, ""]))
        return path
