"""The login of a connection on a listener with SASL. It checks frames, and changes the connection's principal."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING

from kwire.access.audit.entries import KAFKA
from kwire.access.principal import USER, Principal
from kwire.access.sasl.authentication import Authentication, IllegalRequest, SaslFailure, SaslPolicy
from kwire.access.sasl.mechanism import TOKEN_BYTES_MAX
from kwire.handlers.shared.context import DropConnection
from kwire.server.kafka.shared import Shared
from kwire.wire.frame import LOGIN_STEP_BYTES, SMALL_STEP_BYTES

if TYPE_CHECKING:
    from kwire.server.kafka.connection import KafkaConnection


class Login:
    """Connects the login of one client, which does no I/O, with its connection."""

    __slots__ = ("_connection", "_shared", "authentication")

    def __init__(self, connection: "KafkaConnection", shared: Shared, policy: SaslPolicy) -> None:
        self._connection = connection
        self._shared = shared
        self.authentication = Authentication(
            shared.services.users,
            shared.login_queue,
            policy,
            self._complete,
            self._note_failure,
            host=connection.client_host,
            keys=shared.services.keys,
        )
        connection.reader.frame_bytes_max = shared.services.config.sasl.receive_bytes_max
        connection.reader.step_bytes = LOGIN_STEP_BYTES

    @property
    def user(self) -> str | None:
        """The name of the user, if the client has logged in as one."""
        principal = self.authentication.principal
        return None if principal is None or principal.type != USER else principal.name

    @property
    def has_ended(self) -> bool:
        """Whether the client has logged in with a key, and the login is no longer valid."""
        key_login = self.authentication.key_login
        return key_login is not None and not key_login.is_valid()

    def is_overdue(self, now: float) -> bool:
        deadline = self.authentication.deadline
        return deadline is not None and now > deadline

    def check_frame(self, frame: memoryview) -> bool:
        """Return whether the frame is a token without a request header. Raises DropConnection if it is not allowed."""
        authentication = self.authentication
        if authentication.expects_raw_token:
            return True
        try:
            authentication.check_request(int.from_bytes(frame[:2], "big"))
        except IllegalRequest as problem:
            if not authentication.is_done:
                self._shared.metrics.logins_failed += 1
            raise DropConnection(str(problem)) from None
        return False

    def answer_raw(self, frame: memoryview) -> Coroutine[None, None, bytes]:
        """Return the answer to a token without a request header. There is none with an error: raises DropConnection."""
        # The frame is released while the token is checked, so a token that is too long is not kept.
        return self._answer_raw(bytes(frame) if len(frame) <= TOKEN_BYTES_MAX else None)

    async def _answer_raw(self, token: bytes | None) -> bytes:
        try:
            step = await self.authentication.authenticate(token)
        except (SaslFailure, IllegalRequest) as failure:
            raise DropConnection(str(failure)) from None
        return len(step.token).to_bytes(4, "big") + step.token

    def _complete(self, principal: Principal) -> None:
        """Serve the client as this principal. Called after each authentication."""
        connection = self._connection
        self._shared.metrics.logins += 1
        mechanism = self.authentication.mechanism or ""
        self._shared.services.audit.login(principal, connection.client_host, KAFKA, mechanism)
        if connection.views is None or connection.views.access.principal != principal:
            connection.set_principal(principal)
        else:
            # A request of this authentication may have had another client id, and no quota.
            connection.forget_client()
        connection.gate = None if self.authentication.expires_at is None else self
        connection.reader.frame_bytes_max = self._shared.network.request_bytes_max
        connection.reader.step_bytes = SMALL_STEP_BYTES

    def _note_failure(self, user: str | None, reason: str) -> None:
        self._shared.metrics.logins_failed += 1
        host = self._connection.client_host
        self._shared.services.audit.login_failed(user, host, KAFKA, self.authentication.mechanism or "", reason)
