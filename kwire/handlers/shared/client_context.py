"""The part of a request's context that depends only on the client and on the version of the request."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kwire.access.quotas.client_quota import ClientQuota, MutationQuota, unlimited_mutations
from kwire.wire.codec import EncodedElements, elements_encoder, encode_message
from kwire.wire.names import Names


class ClientContext:
    """Encodes parts of a response, with names as the client sees them, and has the client's quota of changes."""

    __slots__ = ()

    api_version: int
    # None if the client has no quota.
    quota: ClientQuota | None

    @property
    def names(self) -> Names | None:
        """The translation of names in requests and responses; None for a client that uses full names."""
        raise NotImplementedError

    def mutation_quota(self, first_strict_version: int) -> MutationQuota:
        """Return the client's quota of changes. It is strict from this version of the API on (KIP-599)."""
        if self.quota is None:
            return unlimited_mutations()
        return self.quota.mutations(is_strict=self.api_version >= first_strict_version)

    def encode(self, message: object) -> bytes:
        """Encode a message in the version of the request, with names as the client sees them."""
        return encode_message(message, self.api_version, self.names)

    def elements_encoder(self, cls: type[Any], array: str) -> Callable[[Sequence[Any]], bytes]:
        """Return the encoder of some elements of a top-level array of a response. It is generated on first use."""
        version, names = self.api_version, self.names

        def encode(some: Sequence[Any]) -> bytes:
            if names is None:
                return elements_encoder(cls, array, version)(some)
            return elements_encoder(cls, array, version, is_scoped=True)(some, names)

        return encode

    def encoded_elements(self, count: int, chunks: Iterable[bytes]) -> EncodedElements:
        """Return the array whose elements were encoded by `elements_encoder`."""
        return EncodedElements(count, b"".join(chunks), self.names)
