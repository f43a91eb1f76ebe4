"""The types of bodies and answers, for the OpenAPI document. They are generated from the declarations of the messages.

A type has the fields of all served versions. The description of a field says which versions have it, if not all do.
"""

from functools import cache
from typing import Annotated, Any, Literal

import msgspec

from kwire.web.kafka_requests.reading import INTEGER_BITS, UUID_LENGTH, integer_range
from kwire.web.kafka_requests.writing import error_name_field
from kwire.wire.schema import REQUIRED, Api, ArrayKind, Field, Kind, Struct, Versions, message_of
from kwire.wire.types import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID, Fixed, Varlen

_SCALARS: dict[Fixed | Varlen, Any] = {
    BOOL: bool,
    FLOAT64: float | Literal["Infinity", "-Infinity", "NaN"],
    # The maximum length of a string is in bytes, which JSON Schema cannot express.
    STRING: str,
    BYTES: bytes,
    RECORDS: bytes,
    UUID: Annotated[str, msgspec.Meta(pattern=f"^[A-Za-z0-9_-]{{{UUID_LENGTH - 1}}}[AQgw]$")],
    **{
        kind: Annotated[int, msgspec.Meta(ge=max(integer_range(kind)[0], -(2**63)), le=integer_range(kind)[1])]
        for kind in INTEGER_BITS
    },
}


@cache
def request_shape(api: Api) -> type[msgspec.Struct]:
    return _Shapes(api, is_request=True).shape(message_of(api.request).struct)


@cache
def response_shape(api: Api) -> type[msgspec.Struct]:
    return _Shapes(api, is_request=False).shape(message_of(api.response).struct)


@cache
def query_shape(api: Api) -> type[msgspec.Struct]:
    """Return the type of the query string: the version of the request and the response."""
    description = "The version of the request and of its response. The default is the newest one."
    version = Annotated[int, msgspec.Meta(ge=api.first_version, le=api.last_version, description=description)]
    return msgspec.defstruct(
        f"{api.name}Query",
        [("version", version, api.last_version)],
        module=__name__,
        kw_only=True,
        forbid_unknown_fields=True,
    )


class _Shapes:
    """Generates the types of one message."""

    def __init__(self, api: Api, *, is_request: bool) -> None:
        self._api = api
        self._is_request = is_request
        self._made: dict[Struct, type[msgspec.Struct]] = {}

    def shape(self, kind: Struct) -> type[msgspec.Struct]:
        found = self._made.get(kind)
        if found is None:
            found = self._made[kind] = self._make(kind)
        return found

    @property
    def _message_name(self) -> str:
        return message_of(self._api.request if self._is_request else self._api.response).name

    def _make(self, kind: Struct) -> type[msgspec.Struct]:
        fields: list[Any] = []
        for field in kind.fields:
            if not any(version in field.versions for version in self._api.versions):
                continue
            fields.append((field.name, *self._annotation(field)))
            error_name = error_name_field(field.name)
            if error_name is not None and not self._is_request:
                meta = msgspec.Meta(description=f"Kafka's name of `{field.name}`, if that is not 0.")
                fields.append((error_name, Annotated[str, meta] | msgspec.UnsetType, msgspec.UNSET))
        # The name of a nested struct is unique only within its message.
        name = kind.name if kind.name.startswith(self._api.name) else f"{self._message_name}{kind.name}"
        return msgspec.defstruct(
            name,
            fields,
            module=f"{__name__}.{'requests' if self._is_request else 'responses'}.{self._api.name}",
            kw_only=True,
            forbid_unknown_fields=True,
        )

    def _annotation(self, field: Field) -> tuple[Any, ...]:
        """Return the type of a field, and its default if it has one."""
        served = [version for version in self._api.versions if version in field.versions]
        shape = self._kind(field.kind)
        if any(version in field.nullable for version in served):
            shape = shape | None
        if len(served) < len(list(self._api.versions)):
            versions = Versions(served[0], served[-1])
            noun = "Version" if len(served) == 1 else "Versions"
            shape = Annotated[shape, msgspec.Meta(description=f"{noun} {versions}.")]
            # A response of another version does not have the field.
            if not self._is_request:
                return (shape | msgspec.UnsetType, msgspec.UNSET)
        if not self._is_request or field.default is REQUIRED:
            return (shape,)
        return (shape, self._default(field))

    def _kind(self, kind: Kind) -> Any:
        if isinstance(kind, ArrayKind):
            return list[self._kind(kind.element)]  # type: ignore[misc]
        return self.shape(kind) if isinstance(kind, Struct) else _SCALARS[kind]

    def _default(self, field: Field) -> Any:
        if field.default is list:
            return msgspec.field(default_factory=list)
        if isinstance(field.kind, Struct) and field.default is not None:
            return msgspec.UNSET
        if field.kind is UUID:
            return "A" * UUID_LENGTH
        return field.default
