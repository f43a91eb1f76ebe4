"""What can be wrong with bytes from the network."""


class WireError(Exception):
    """The bytes are not what the protocol says; the connection they came from cannot be trusted any further."""


class FrameTooLarge(WireError):
    """A peer announced a frame of a negative size, or one above the configured bound."""


class UnsupportedRequest(WireError):
    """A well-formed header asks for an API or a version that is not served."""


class TooManyElements(WireError):
    """The arrays of a message have more elements than the caller decodes in one go, or than any message may have."""
