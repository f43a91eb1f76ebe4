"""Errors in the bytes that were received from a client."""


class WireError(Exception):
    """The bytes violate the protocol, and the connection has to be closed."""


class FrameTooLarge(WireError):
    """The size of a frame is negative or above the configured maximum."""


class UnsupportedRequest(WireError):
    """The header is valid, but requests an API or a version that is not supported."""


class TooManyElements(WireError):
    """The arrays of a message have more elements than the caller allows, or more than ELEMENTS_MAX."""
