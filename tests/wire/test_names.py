"""Which strings of messages are names, and their translation for clients with a scope."""

from collections.abc import Iterator
from typing import Any

import pytest

from kwire.access.scope import ID_LENGTH, Scope, ScopedNames
from kwire.handlers import HANDLERS
from kwire.wire.codec import ELEMENTS_MAX, chunked_decoder, chunked_encoder, decode_message, decoder, encode_message
from kwire.wire.errors import WireError
from kwire.wire.messages.find_coordinator import FindCoordinatorRequest
from kwire.wire.messages.heartbeat import HeartbeatRequest
from kwire.wire.messages.list_config_resources import ListConfigResourcesResponse
from kwire.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kwire.wire.names import OutsideScope
from kwire.wire.schema import ArrayKind, Field, Struct, message_of
from kwire.wire.types import ERROR_TEXT, STRING
from tests.wire.strategies import drawn
from tests.wire.test_chunked_codec import finished

NAMES = ScopedNames(Scope("tenant", "a" * ID_LENGTH))
# Strings of served messages that are neither names of a scope's resources nor error messages.
OTHER_STRINGS = {
    "assignor_name", "client_host", "client_id", "client_software_name", "client_software_version", "cluster_id",
    "committed_metadata", "config_type", "configuration_keys", "documentation", "entity_name", "entity_type", "feature",
    "group_instance_id", "group_state", "group_type", "host", "host_filter", "instance_id", "leader", "log_dir",
    "match", "mechanism", "mechanisms", "member_id", "metadata", "path", "principal", "principal_filter",
    "protocol_data", "protocol_name", "protocol_type", "rack", "rack_id", "reason", "server_assignor", "state_filters",
    "states_filter", "transaction_state", "types_filter", "unknown_state_filters", "user", "value",
    # Expressions, which handlers match against plain names.
    "subscribed_topic_regex", "transactional_id_pattern",
}  # fmt: skip
# Structs whose `name` or `key` is the name of a setting, a feature, a user, a listener, an assignor or a quota.
OTHER_NAMES = {
    "AlterableConfig", "CreatableTopicConfig", "CreatableTopicConfigs", "DescribeConfigsResourceResult",
    "DescribeConfigsSynonym", "FinalizedFeatureKey", "JoinGroupRequestProtocol", "Listener", "OpData",
    "ScramCredentialDeletion", "ScramCredentialUpsertion", "SupportedFeatureKey", "UserName", "ValueData",
}  # fmt: skip

MESSAGES = [cls for handler in HANDLERS.values() for cls in (handler.api.request, handler.api.response)]


def strings(kind: Struct) -> Iterator[tuple[Struct, Field]]:
    for f in kind.fields:
        element = f.kind.element if isinstance(f.kind, ArrayKind) else f.kind
        if isinstance(element, Struct):
            yield from strings(element)
        elif element is STRING:
            yield kind, f


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_every_string_is_a_name_or_known_to_be_none(cls: type[Any]) -> None:
    for kind, f in strings(message_of(cls).struct):
        is_other = f.name in OTHER_STRINGS or (f.name in ("name", "key") and kind.name in OTHER_NAMES)
        assert (f.entity is None) == is_other, (kind.name, f.name)


def values(message: Any) -> Iterator[tuple[Any, Field, Any]]:
    """All strings of a message with their structs."""
    if isinstance(message, list):
        for one in message:
            yield from values(one)
    elif hasattr(type(message), "__struct__"):
        for f in type(message).__struct__.fields:
            value = getattr(message, f.name)
            if isinstance(value, str):
                yield message, f, value
            elif f.entity is not None and isinstance(value, list):
                for one in value:
                    yield message, f, one
            else:
                yield from values(value)


def is_translated(owner: Any, f: Field) -> bool:
    entity = f.entity
    if entity is None or entity is ERROR_TEXT:
        return False
    return entity.by is None or getattr(owner, entity.by) in entity.types


# In this response the type of a resource follows its name, so its names cannot be translated while it is decoded. The
# server decodes only requests.
DECODABLE = [cls for cls in MESSAGES if cls is not ListConfigResourcesResponse]


@pytest.mark.parametrize("cls", DECODABLE, ids=lambda cls: cls.__name__)
def test_decoded_names_have_the_prefix_and_encoded_names_do_not(cls: type[Any]) -> None:
    for version in message_of(cls).versions:
        for message in drawn(cls, version, 3):
            plain = encode_message(message, version)
            decoded = decoder(cls, version, is_scoped=True)(plain, ELEMENTS_MAX, NAMES.prefix)
            chunked, _ = finished(chunked_decoder(cls, version, is_scoped=True)(plain, NAMES.prefix))
            assert chunked == decoded
            for (owner, f, full), (_, _, sent) in zip(values(decoded), values(message), strict=True):
                is_default = sent == f.default and version not in f.versions
                assert full == (NAMES.prefix + sent if is_translated(owner, f) and not is_default else sent), f.name
            assert encode_message(decoded, version, NAMES) == plain
            parts, _ = finished(chunked_encoder(cls, version, is_scoped=True)(decoded, NAMES))
            assert b"".join(parts) == plain


def test_null_stays_null() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None)])
    decoded = decoder(MetadataRequest, 12, is_scoped=True)(encode_message(request, 12), ELEMENTS_MAX, NAMES.prefix)
    assert decoded == request


def test_name_outside_of_the_scope_is_not_encoded() -> None:
    for name in ("orders", f"kws-{'b' * ID_LENGTH}.orders", NAMES.prefix[:-1]):
        with pytest.raises(OutsideScope):
            encode_message(FindCoordinatorRequest(key=name), 0, NAMES)


@pytest.mark.parametrize("version", [0, 4])
def test_name_has_room_for_its_prefix(version: int) -> None:
    longest = 32767 - len(NAMES.prefix)
    for length, is_accepted in ((longest, True), (longest + 1, False)):
        request = HeartbeatRequest(group_id="g" * length, generation_id=1, member_id="m")
        body = encode_message(request, version)
        decode = decoder(HeartbeatRequest, version, is_scoped=True)
        if is_accepted:
            assert len(decode(body, ELEMENTS_MAX, NAMES.prefix).group_id) == 32767
        else:
            with pytest.raises(WireError):
                decode(body, ELEMENTS_MAX, NAMES.prefix)
        assert decode_message(HeartbeatRequest, version, body) == request
