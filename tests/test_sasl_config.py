"""The settings of SASL: mechanisms and sessions of each listener, and which listeners other machines may reach."""

import pytest

from kwire.config import Config, InvalidConfig, load
from kwire.config.tree import with_dynamic

TWO = "listeners=SASL_PLAINTEXT://127.0.0.1:9092,INSIDE://127.0.0.1:9093"
MAP = "listener.security.protocol.map=SASL_PLAINTEXT:SASL_PLAINTEXT,INSIDE:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT"
ALL = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def loaded(*settings: str) -> Config:
    return load(environment={}, settings=settings)


def test_defaults() -> None:
    sasl = loaded("listeners=SASL_PLAINTEXT://127.0.0.1:9092").sasl
    assert sasl.listeners == {"SASL_PLAINTEXT": (ALL, 0)}
    assert (sasl.failure_delay_ms, sasl.receive_bytes_max) == (100, 524288)
    assert loaded().sasl.listeners == {}


def test_a_listener_may_have_settings_of_its_own() -> None:
    config = loaded(
        TWO,
        MAP,
        "sasl.enabled.mechanisms=SCRAM-SHA-512",
        "connections.max.reauth.ms=60000",
        "listener.name.inside.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
        "listener.name.inside.connections.max.reauth.ms=1000",
    )
    assert config.sasl.listeners == {
        "SASL_PLAINTEXT": (("SCRAM-SHA-512",), 60000),
        "INSIDE": (("PLAIN", "SCRAM-SHA-256"), 1000),
    }
    assert config.warnings == ()


def test_other_settings_have_no_prefix() -> None:
    with pytest.raises(InvalidConfig, match="unknown setting"):
        loaded(TWO, MAP, "listener.name.inside.num.partitions=3")


@pytest.mark.parametrize(
    "assignment",
    [
        "sasl.enabled.mechanisms=GSSAPI",
        "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER",
        "sasl.enabled.mechanisms=",
        "listener.name.inside.sasl.enabled.mechanisms=plain",
    ],
)
def test_mechanisms_that_the_server_does_not_have_are_refused(assignment: str) -> None:
    with pytest.raises(InvalidConfig, match="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, and no other"):
        loaded(TWO, MAP, assignment)
    # Kafka's default may be in the file of a server without SASL.
    if not assignment.startswith("listener"):
        loaded(assignment)


def test_mechanisms_change_while_the_server_runs() -> None:
    config = loaded("listeners=SASL_PLAINTEXT://127.0.0.1:9092")
    changed = with_dynamic(config, {"sasl.enabled.mechanisms": "SCRAM-SHA-512"}, {})
    assert changed.sasl.listeners["SASL_PLAINTEXT"].mechanisms == ("SCRAM-SHA-512",)
    with pytest.raises(InvalidConfig):
        with_dynamic(config, {"sasl.enabled.mechanisms": "GSSAPI"}, {})


def test_a_listener_with_sasl_may_be_reached_by_other_machines() -> None:
    exposed = "listeners=SASL_PLAINTEXT://0.0.0.0:9092"
    (warning,) = loaded(exposed).warnings
    assert "SASL_PLAINTEXT://0.0.0.0:9092" in warning
    assert "without encryption" in warning
    assert loaded(exposed, "sasl.enabled.mechanisms=SCRAM-SHA-512").warnings == ()
    assert loaded(exposed.replace("0.0.0.0", "127.0.0.1")).warnings == ()
    # A dynamic change does not repeat the warning.
    assert with_dynamic(loaded(exposed), {}, {}).warnings == (warning,)


def test_other_listeners_and_http_stay_refused() -> None:
    sasl = "SASL_PLAINTEXT://0.0.0.0:9092"
    for refused in (f"listeners={sasl},PLAINTEXT://0.0.0.0:9093", f"listeners={sasl},PLAINTEXT://:9093"):
        with pytest.raises(InvalidConfig, match="its clients are not authenticated"):
            loaded(refused)
    with pytest.raises(InvalidConfig, match=r"kwire\.http\.listener"):
        loaded(f"listeners={sasl}", "kwire.http.listener=0.0.0.0:8080")
    loaded(f"listeners={sasl},PLAINTEXT://127.0.0.1:9093")
