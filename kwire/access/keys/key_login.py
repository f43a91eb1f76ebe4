"""The login of clients with a key."""

from kwire.access.principal import KEY, Principal


class KeyLogin:
    """The login of all clients that use the same secret of a key. It ends when the secret is no longer valid.

    The key was revoked or has expired, or it was rotated and the overlap has ended. HTTP streams compare `revision`;
    Kafka connections are closed by a listener of `Keys`.
    """

    __slots__ = ("__weakref__", "key_id", "revision", "secret_number")

    end_reason = "the key was revoked, has expired, or has another secret now"

    def __init__(self, key_id: str, secret_number: int) -> None:
        self.key_id = key_id
        self.secret_number = secret_number
        self.revision = 0

    @property
    def principal(self) -> Principal:
        return Principal(KEY, self.key_id)

    def is_valid(self) -> bool:
        return not self.revision

    def end(self) -> None:
        self.revision = 1
