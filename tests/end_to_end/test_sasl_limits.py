"""What a client can do before it has logged in, and how soon a deleted user is gone: raw sockets, a real server."""

import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from kwire.access.sasl.authentication import LOGIN_REQUESTS_MAX
from kwire.errors import ErrorCode
from kwire.server.kafka.revocation import REVOKED_SECONDS_MAX
from kwire.wire.codec import decode_message, encode_message
from kwire.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from kwire.wire.messages.api_versions import ApiVersionsRequest
from kwire.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.support.clients import unique_name
from tests.support.clients_raw import frame
from tests.support.sasl_server import DEADLINE_S, SECRET, SaslServer, SaslSocket, running_sasl_server
from tests.support.server import wait_until
from tests.support.users import ScramClient, plain_token

MIB = 1024 * 1024
DELAY_MS = 300
DELAY_S = DELAY_MS / 1000
# Measured over a socket, on a busy machine.
TOLERANCE_S = 0.05
CLOSED_S = 5.0
GUESS_COUNT = 40
GUESS_SECONDS_MAX = 10.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslServer]:
    settings = {"connection.failed.authentication.delay.ms": str(DELAY_MS)}
    with running_sasl_server(tmp_path_factory.mktemp("sasl-limits"), settings) as started:
        started.set_password("alice")
        yield started


def test_before_the_login_other_requests_close_the_connection(server: SaslServer) -> None:
    expected = server.authentications("failed")
    for key in (0, 1, 3, 10, 19, 36, 50, 51, 68, 999, -1):
        with server.connect() as client:
            client.api_versions()
            client.raw.send_bytes(frame(key, 0, bytes(100)))
            client.closed_after(CLOSED_S)
        expected += 1
    assert server.authentications("failed") == expected


def test_after_the_handshake_other_requests_close_the_connection(server: SaslServer) -> None:
    ping = encode_message(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 0)
    for wrong in (frame(18, 0, ping), frame(17, 1, b"\x00\x05PLAIN"), frame(3, 0, bytes(4))):
        with server.connect() as client:
            assert client.handshake("SCRAM-SHA-256").error_code == 0
            client.raw.send_bytes(wrong)
            client.closed_after(CLOSED_S)


def test_a_login_lets_requests_pass(server: SaslServer) -> None:
    with server.connect() as client:
        listed = client.api_versions()
        assert client.handshake("PLAIN").mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        answer = client.authenticate(plain_token("alice", SECRET))
        assert (answer.error_code, answer.error_message, answer.session_lifetime_ms) == (0, None, 0)
        assert client.metadata()
        assert client.api_versions() == listed, "the same APIs before and after the login"
        # As in Kafka, a second login is refused and the first one stays.
        assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.authenticate(b"").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.metadata()
    with SaslSocket(("127.0.0.1", server.open_port)) as client:
        assert client.api_versions() == listed
        assert client.handshake("PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.metadata()


@pytest.mark.parametrize("version", [0, 1])
def test_a_wrong_password_is_answered_late_and_then_the_connection_is_closed(server: SaslServer, version: int) -> None:
    with server.connect() as client:
        client.handshake("PLAIN")
        began = time.monotonic()
        answer = client.authenticate(plain_token("alice", "wrong"), version)
        assert time.monotonic() - began >= DELAY_S - TOLERANCE_S
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        client.closed_after(CLOSED_S)


def test_an_unknown_mechanism_is_answered_late_with_those_that_are_known(server: SaslServer) -> None:
    with server.connect() as client:
        began = time.monotonic()
        answer = client.handshake("GSSAPI")
        assert time.monotonic() - began >= DELAY_S - TOLERANCE_S
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        client.closed_after(CLOSED_S)


def test_tokens_without_headers_follow_version_0_of_the_handshake(server: SaslServer) -> None:
    def send(client: SaslSocket, token: bytes) -> None:
        client.raw.send_bytes(struct.pack(">i", len(token)) + token)

    with server.connect() as client:
        assert client.handshake("SCRAM-SHA-512", version=0).error_code == 0
        scram = ScramClient("SCRAM-SHA-512", "alice", SECRET)
        send(client, scram.first())
        send(client, scram.final(client.raw.receive_frame()))
        assert client.raw.receive_frame() == scram.server_final
        assert client.metadata()
    with server.connect() as client:
        client.handshake("PLAIN", version=0)
        send(client, plain_token("alice", SECRET))
        assert client.raw.receive_frame() == b""
        assert client.metadata()
    for wrong in (plain_token("alice", "wrong"), b"", frame(3, 0, bytes(4))[4:], b"x" * 100_000):
        with server.connect() as client:
            client.handshake("PLAIN", version=0)
            began = time.monotonic()
            send(client, wrong)
            client.closed_after(CLOSED_S)
            assert time.monotonic() - began >= DELAY_S - TOLERANCE_S


def test_frames_before_the_login_are_small(server: SaslServer) -> None:
    """CVE-2022-34917: clients that had not logged in could make Kafka allocate as much memory as they wished."""
    for size in (600 * 1024, 100 * MIB, 2**31 - 1, -1):
        with server.connect() as client:
            client.raw.send_bytes(struct.pack(">i", size) + bytes(1000))
            client.closed_after(CLOSED_S)
    # The largest frame that is read is refused as a token, and the memory is not kept during the delay.
    with server.connect() as client:
        client.handshake("PLAIN")
        answer = client.authenticate(b"\0alice\0" + b"x" * (511 * 1024))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        client.closed_after(CLOSED_S)
    with server.connect() as client:
        client.log_in()
        body = encode_message(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        client.raw.send_bytes(frame(18, 3, b"\0" + body + bytes(600 * 1024)))
        assert client.raw.receive_frame(), "after the login a frame may have socket.request.max.bytes"


def _tags(count: int) -> bytes:
    encoded = bytearray()
    while count >= 0x80:
        encoded.append(count & 0x7F | 0x80)
        count >>= 7
    encoded.append(count)
    return bytes(encoded)


def test_tags_before_the_login_allocate_nothing(server: SaslServer) -> None:
    """CVE-2026-111115: the count of tagged fields in a request header was allocated before the login."""
    before = server.process.anonymous_memory_bytes()
    pairs = b"".join(_tags(number) + b"\0" for number in range(100_000))
    versions = encode_message(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
    bombs = [
        frame(18, 3, _tags(2**31 - 1)),
        frame(18, 3, _tags(2**31 - 1) + bytes(100_000)),
        frame(18, 3, _tags(100_000) + pairs),
        frame(18, 3, b"\0" + versions[:-1] + _tags(2**31 - 1)),
        frame(18, 3, b"\0" + versions[:-1] + _tags(100_000) + pairs),
        frame(18, 3, b"\0" + b"\xff\xff\xff\xff\x0f"),
        frame(36, 2, b"\0\xff\xff\xff\xff\x0f"),
    ]
    for _ in range(5):
        for bomb in bombs:
            with server.connect() as client:
                if bomb[4:6] == b"\0\x24":
                    client.handshake("PLAIN")
                client.raw.send_bytes(bomb)
                client.closed_after(CLOSED_S)
    assert server.process.anonymous_memory_bytes() - before < 32 * MIB


def test_requests_of_a_login_are_counted(server: SaslServer) -> None:
    ping = encode_message(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 0)
    with server.connect() as client:
        for _ in range(LOGIN_REQUESTS_MAX):
            client.api_versions()
        client.raw.send_bytes(frame(18, 0, ping))
        client.closed_after(CLOSED_S)
    with server.connect() as client:
        client.raw.send_bytes(frame(18, 0, ping) * 10_000)
        client.closed_after(CLOSED_S)


def test_guessing_of_passwords_is_slow_and_delays_nobody_else(server: SaslServer) -> None:
    """Each guess costs its connection, and the delay; others are answered meanwhile."""
    is_over = threading.Event()
    guesses = 0

    def guess() -> None:
        nonlocal guesses
        while not is_over.is_set():
            # If the address has failed too often, a connection that waits may be closed without an answer.
            with server.connect() as client, suppress(ConnectionError):
                client.log_in("alice", "wrong")
                guesses += 1

    threads = [threading.Thread(target=guess, daemon=True) for _ in range(4)]
    began = time.monotonic()
    with server.connect() as other:
        other.log_in()
        for thread in threads:
            thread.start()
        slowest = 0.0
        while guesses < GUESS_COUNT and time.monotonic() - began < GUESS_SECONDS_MAX:
            asked = time.monotonic()
            other.metadata()
            slowest = max(slowest, time.monotonic() - asked)
        is_over.set()
    for thread in threads:
        thread.join(30)
    elapsed = time.monotonic() - began
    assert guesses <= len(threads) * (elapsed / DELAY_S + 1)
    assert slowest < 1.0


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_deleted_user_is_disconnected_and_cannot_return(server: SaslServer, mechanism: str) -> None:
    user = f"bob-{mechanism}"
    server.set_password(user)

    def log_in(client: SaslSocket) -> int:
        client.handshake(mechanism)
        if mechanism == "PLAIN":
            return client.authenticate(plain_token(user, SECRET)).error_code
        scram = ScramClient(mechanism, user, SECRET)
        return client.authenticate(scram.final(client.authenticate(scram.first()).auth_bytes)).error_code

    with server.connect() as first, server.connect() as second, server.connect() as alice:
        assert (log_in(first), log_in(second)) == (0, 0)
        alice.log_in()
        # It waits for records that never come.
        poll_forever(second, server)
        server.delete(user)
        began = time.monotonic()
        first.closed_after(CLOSED_S)
        second.closed_after(CLOSED_S)
        # A waiting Fetch must not return records that are written after the deletion.
        assert time.monotonic() - began < REVOKED_SECONDS_MAX / 2
        assert alice.metadata()
    with server.connect() as client:
        assert log_in(client) == ErrorCode.SASL_AUTHENTICATION_FAILED


def poll_forever(client: SaslSocket, server: SaslServer) -> None:
    """A Fetch of an empty topic with a wait of ten minutes."""
    topic = unique_name("silent")
    for future in server.admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(DEADLINE_S)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=600_000,
        min_bytes=1,
        topics=[
            FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)])
        ],
    )
    client.send(request, 4)
    assert not client.raw.has_data(0.3), "the fetch must wait"


def test_a_changed_password_disconnects_the_client_that_changed_it_after_its_answer(server: SaslServer) -> None:
    server.set_password("carol")
    change = ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=bytes(16), salted_password=bytes(32)
    )
    with server.connect() as carol:
        carol.log_in("carol")
        body = carol.ask(AlterUserScramCredentialsRequest(deletions=[], upsertions=[change]), 0)
        answer = decode_message(AlterUserScramCredentialsResponse, 0, body[1:])
        assert [(one.user, one.error_code) for one in answer.results] == [("carol", 0)]
        carol.closed_after(CLOSED_S)


def test_sessions_end(tmp_path: Path) -> None:
    with running_sasl_server(tmp_path, {"connections.max.reauth.ms": "1500"}) as server:
        server.set_password("alice")
        with server.connect() as again, server.connect() as expired:
            for client in (again, expired):
                assert client.log_in().session_lifetime_ms == 1500
            ends = time.monotonic() + 1.5
            wait_until(lambda: time.monotonic() > ends - 0.4, "most of the session")
            assert again.handshake("PLAIN").error_code == 0
            assert again.authenticate(plain_token("alice", SECRET)).session_lifetime_ms == 1500
            assert expired.metadata()
            wait_until(lambda: time.monotonic() > ends + 0.1, "the end of the session")
            assert again.metadata()
            expired.raw.send_bytes(frame(3, 0, bytes(4)))
            expired.closed_after(CLOSED_S)


def test_the_password_is_nowhere(server: SaslServer) -> None:
    """Planted secrets: the data directory, both streams of the process, metrics and errors."""
    with server.connect() as client:
        client.log_in("alice", SECRET)
    with server.connect() as client:
        client.handshake("PLAIN")
        answer = client.authenticate(plain_token("alice", SECRET + "x"))
        assert SECRET not in str(answer.error_message)
    with urllib.request.urlopen(f"{server.process.http_url}/metrics") as response:
        shown = response.read()
    files = [path for path in server.process.directory.rglob("*") if path.is_file()]
    assert any(b"alice" in path.read_bytes() for path in files), "the users are stored"
    for text in (shown, *(path.read_bytes() for path in files)):
        assert SECRET.encode() not in text
