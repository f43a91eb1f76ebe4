"""The definition of a webhook: which events are sent to which URL, at which rate, and what happens on failure.

Definitions are immutable. A change creates a new definition. A request has these fields, and a request with other
fields is refused:

| field | meaning |
|---|---|
| `url` | each event is sent to this URL with a POST request |
| `topics` | for each topic, the event after which delivery starts: an event id, null (all events) or `"latest"` |
| `policy` | `retry`: failed events are retried, then become dead letters; `remove`: a failure removes the webhook |
| `types` | the event types to deliver; all if the list is empty |
| `filter` | an expression (`expression.py`) that an event must satisfy |
| `mode` | `ordered`: one event of a topic at a time, and a failed event delays the later ones; or `parallel` |
| `parallel` | the number of concurrent deliveries per topic in the mode `parallel`; failed events do not delay others |
| `ratePerSecond` | the number of deliveries that may start per second |
| `headers` | additional request headers |
| `body` | `event`, `binary` or `structured` (`bodies.py`) |
| `secret` | `whsec_…`; generated if absent |
| `description` | free text |
| `takeOver` | true: the webhook gets the client's rights instead of its creator's (only in changes) |
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, cast, get_args
from urllib.parse import unquote_plus, urlsplit

from kwire.access.principal import ANONYMOUS, Principal, parse_principal
from kwire.broker.topics.names import NAME_LENGTH_MAX
from kwire.errors import InvalidWebhook
from kwire.streams.events.event import TYPE_BYTES_MAX, Event, time_text
from kwire.streams.webhooks.delivery.bodies import BODY_FORMS, BodyForm
from kwire.streams.webhooks.delivery.signing import SIGNING_HEADERS, InvalidSecret, SigningSecret, SigningSecrets
from kwire.streams.webhooks.expression import Expression

Policy = Literal["remove", "retry"]
State = Literal["active", "paused", "disabled"]
POLICIES: tuple[str, ...] = get_args(Policy)

URL_LENGTH_MAX = 2048
TOPICS_MAX = 100
TYPES_MAX = 100
PARALLEL_MAX = 100
PARALLEL_DEFAULT = 8
RATE_MIN, RATE_MAX = 0.001, 100_000.0
HEADERS_MAX = 20
HEADER_BYTES_MAX = 4096
DESCRIPTION_LENGTH_MAX = 500
LATEST = "latest"
# Shorter header values and parts of a URL's query are not treated as secrets in answers of receivers.
SECRET_LENGTH_MIN = 6

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
# Printable ASCII. Spaces and tabs are allowed except at the ends. Line breaks are not allowed.
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?", re.ASCII)
# Headers that the message or the HTTP client sets.
_RESERVED_HEADERS = SIGNING_HEADERS | {
    *("host", "content-length", "content-type", "content-encoding", "transfer-encoding", "te", "trailer", "upgrade"),
    *("connection", "keep-alive", "proxy-connection", "proxy-authorization", "expect", "accept-encoding"),
}
_RESERVED_PREFIXES = ("ce-", "webhook-")


class TopicStart(NamedTuple):
    """Where reading of a topic starts.

    `start_id` is a random id that is generated whenever a topic is added to a webhook. A stored position is valid only
    if it has the same id.
    """

    topic_id: bytes
    offset: int
    start_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """The definition of a webhook, as described at the top of this module.

    `parallel` is 1 in ordered mode. `reason` says why the webhook is paused or disabled. `locked` is set if its secrets
    cannot be decrypted, and says why. Then it has only the origin of its URL, no headers and no signing secrets, and it
    is neither changed nor stored.
    """

    webhook_id: str
    url: str
    topics: Mapping[str, TopicStart]
    secrets: SigningSecrets
    policy: Policy = "retry"
    types: frozenset[str] = frozenset()
    filter: Expression | None = None
    is_ordered: bool = True
    parallel: int = 1
    rate_per_second: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: BodyForm = "event"
    description: str = ""
    state: State = "active"
    reason: str = ""
    created_ms: int = 0
    # The webhook has the rights of this principal (`rights.py`).
    creator: Principal = ANONYMOUS
    locked: str = ""
    # The prefix of the scope of the creator, empty if it has none. All topics have it, and requests show their names
    # without it.
    scope_prefix: str = ""

    @property
    def url_without_query(self) -> str:
        """The URL for the audit log. The query may contain a password."""
        return origin_of(self.url) + urlsplit(self.url).path

    @property
    def secret_texts(self) -> tuple[str, ...]:
        """The texts that a request of this webhook contains and that must not be recorded, the longest first."""
        query = urlsplit(self.url).query
        raw = [part.partition("=")[2] or part for part in query.split("&")]
        texts = {*self.headers.values(), query, *raw, *map(unquote_plus, raw)}
        # The scheme of a header Authorization is not part of the secret.
        texts |= {value.partition(" ")[2] for value in self.headers.values()}
        return tuple(sorted((one for one in texts if len(one) >= SECRET_LENGTH_MIN), key=len, reverse=True))

    def shown_topic(self, topic: str) -> str:
        """Return the name of a topic as the receiver sees it."""
        return topic.removeprefix(self.scope_prefix)

    def wants(self, topic: str, event: Event) -> bool:
        if self.types and event.type not in self.types:
            return False
        return self.filter is None or self.filter.matches(self.shown_topic(topic), event)

    def changed(self, **values: Any) -> Self:
        return replace(self, **values)

    # --- stored form

    def stored(self) -> dict[str, object]:
        """Return the value for the metadata store, secrets included. `definition_store` encrypts them."""
        value: dict[str, object] = {
            "url": self.url,
            "topics": {
                name: {"topic_id": start.topic_id.hex(), "offset": start.offset, "mark": start.start_id}
                for name, start in self.topics.items()
            },
            "secrets": [[one.secret, one.until_ms] for one in self.secrets.secrets],
            "policy": self.policy,
            "types": sorted(self.types),
            "filter": self.filter.text if self.filter else None,
            "is_ordered": self.is_ordered,
            "parallel": self.parallel,
            "rate_per_second": self.rate_per_second,
            "headers": dict(self.headers),
            "body": self.body,
            "description": self.description,
            "state": self.state,
            "reason": self.reason,
            "created_ms": self.created_ms,
            "creator": str(self.creator),
        }
        # Older versions do not know this field.
        return {**value, "scope_prefix": self.scope_prefix} if self.scope_prefix else value

    @classmethod
    def from_stored(cls, webhook_id: str, value: Mapping[str, Any]) -> Self:
        given = dict(value)
        return cls(
            webhook_id=webhook_id,
            topics={
                name: TopicStart(bytes.fromhex(one["topic_id"]), one["offset"], one["mark"])
                for name, one in given.pop("topics").items()
            },
            secrets=SigningSecrets(tuple(SigningSecret(*one) for one in given.pop("secrets"))),
            types=frozenset(given.pop("types")),
            filter=Expression(text) if (text := given.pop("filter")) is not None else None,
            # Older versions stored no creator.
            creator=parse_principal(given.pop("creator", str(ANONYMOUS))),
            **given,
        )

    # --- public form

    def shown(self) -> dict[str, object]:
        """Return the fields for responses, without secrets and without topics."""
        return {
            "id": self.webhook_id,
            "url": self.url,
            "policy": self.policy,
            "types": sorted(self.types),
            "filter": self.filter.text if self.filter else None,
            "mode": "ordered" if self.is_ordered else "parallel",
            "parallel": self.parallel,
            "ratePerSecond": self.rate_per_second,
            # Header values are not shown, because they may be passwords.
            "headers": dict.fromkeys(self.headers, "…"),
            "body": self.body,
            "description": self.description,
            "state": self.state,
            "reason": self.reason,
            "createdAt": time_text(self.created_ms),
            "creator": str(self.creator),
        }


class WebhookRequest(NamedTuple):
    """A validated request to register or change a webhook. `values` are attributes of a `Definition`."""

    values: Mapping[str, Any]
    # For each topic: the id of the event after which delivery starts, None for the beginning, or LATEST for the end.
    topics: Mapping[str, str | None] | None
    secret: str | None
    # Whether the client that makes the request becomes the creator. Only for changes.
    is_takeover: bool = False
    # The prefix of the scope of this client, empty if it has none.
    scope_prefix: str = ""


def parse_webhook(raw: object, *, is_new: bool = True) -> WebhookRequest:
    """Validate the fields of a request; raises InvalidWebhook.

    With `is_new` False, the request changes a webhook and contains only the fields to be changed.
    """
    if not isinstance(raw, Mapping):
        raise InvalidWebhook("a webhook must be a JSON object")
    unknown = sorted(str(name)[:100] for name in raw if name not in _PARSERS and name not in _OTHER_FIELDS)
    if unknown:
        raise InvalidWebhook(f"a webhook has no field {unknown[0]!r}")
    if is_new:
        for name in ("url", "topics"):
            if raw.get(name) is None:
                raise InvalidWebhook(f"{name} is missing")
    values: dict[str, Any] = {}
    for name, parse in _PARSERS.items():
        if name in raw:
            attribute, value = parse(raw[name])
            values[attribute] = value
    _parse_mode(raw, values)
    topics = _topics(raw["topics"]) if "topics" in raw else None
    secret = raw.get("secret")
    if secret is not None:
        if not isinstance(secret, str):
            raise InvalidWebhook("secret must be a string")
        if not is_new:
            raise InvalidWebhook("secret cannot be changed: rotate it, so that the old one stays valid for a while")
        checked_secrets(secret)
    is_takeover = raw.get("takeOver", False)
    if not isinstance(is_takeover, bool):
        raise InvalidWebhook("takeOver must be true or false")
    if is_new and is_takeover:
        raise InvalidWebhook("takeOver cannot be set for a new webhook: its creator is the client that registers it")
    return WebhookRequest(values, topics, secret, is_takeover)


def checked_secrets(secret: str | None) -> SigningSecrets:
    """Return the secrets of a new webhook. A secret is generated if `secret` is None. Raises InvalidWebhook."""
    try:
        return SigningSecrets.first(secret)
    except InvalidSecret as error:
        raise InvalidWebhook(str(error)) from None


def origin_of(url: str) -> str:
    """Return the scheme, host and port of a URL, which are not secret."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def checked_url(url: object) -> str:
    """Check the syntax of a URL and return it; raises InvalidWebhook. Does not check whether the host is allowed."""
    if not isinstance(url, str) or not url or len(url) > URL_LENGTH_MAX:
        raise InvalidWebhook(f"url must be a string of 1 to {URL_LENGTH_MAX} characters")
    if any(ord(one) <= 0x20 or ord(one) == 0x7F for one in url) or "\\" in url:
        raise InvalidWebhook("url contains characters that are not allowed in a URL")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018  raises for an invalid port
    except ValueError:
        raise InvalidWebhook("url is not a valid URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidWebhook("url must start with https:// or http:// and a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidWebhook("url must not contain a user name or password: use headers")
    if parts.fragment:
        raise InvalidWebhook("url must not have a fragment: it would not be sent")
    return url


def _parse_mode(raw: Mapping[str, Any], values: dict[str, Any]) -> None:
    """Parse `mode` and `parallel`, which depend on each other."""
    if "mode" not in raw and "parallel" not in raw:
        return
    mode, parallel = raw.get("mode"), raw.get("parallel")
    if mode not in (None, "ordered", "parallel"):
        raise InvalidWebhook("mode must be ordered or parallel")
    if parallel is not None and not (_is_int(parallel) and 1 <= parallel <= PARALLEL_MAX):
        raise InvalidWebhook(f"parallel must be a number from 1 to {PARALLEL_MAX}")
    is_ordered = mode == "ordered" or (mode is None and parallel == 1)
    if is_ordered and parallel not in (None, 1):
        raise InvalidWebhook("parallel can only be set in the mode parallel: the mode ordered delivers one at a time")
    values["is_ordered"] = is_ordered
    values["parallel"] = 1 if is_ordered else parallel or PARALLEL_DEFAULT


def _topics(raw: object) -> dict[str, str | None]:
    if isinstance(raw, Sequence) and not isinstance(raw, str | bytes):
        named: Mapping[object, object] = {name: None for name in raw if isinstance(name, str)}
        if len(named) != len(raw):
            raise InvalidWebhook("topics must name each topic once")
    elif isinstance(raw, Mapping):
        named = raw
    else:
        raise InvalidWebhook("topics must be an object of topics and event ids, or a list of topics")
    if not 1 <= len(named) <= TOPICS_MAX:
        raise InvalidWebhook(f"topics must have 1 to {TOPICS_MAX} entries, got {len(named)}")
    topics: dict[str, str | None] = {}
    for name, last in named.items():
        if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH_MAX:
            raise InvalidWebhook(f"a topic name must have 1 to {NAME_LENGTH_MAX} characters")
        if last is not None and not isinstance(last, str):
            raise InvalidWebhook(f"the value of topic {name!r} must be an event id, null or {LATEST!r}")
        topics[name] = last
    return topics


def _types(raw: object) -> tuple[str, frozenset[str]]:
    if raw is None:
        return "types", frozenset()
    if not isinstance(raw, list) or len(raw) > TYPES_MAX:
        raise InvalidWebhook(f"types must be a list of up to {TYPES_MAX} event types")
    for one in raw:
        if not isinstance(one, str) or not 0 < len(one) <= TYPE_BYTES_MAX:
            raise InvalidWebhook(f"an event type must have 1 to {TYPE_BYTES_MAX} characters")
    return "types", frozenset(raw)


def _filter(raw: object) -> tuple[str, Expression | None]:
    if raw is None or raw == "":
        return "filter", None
    if not isinstance(raw, str):
        raise InvalidWebhook("filter must be a string")
    return "filter", Expression(raw)


def _policy(raw: object) -> tuple[str, Policy]:
    if raw not in POLICIES:
        raise InvalidWebhook(f"policy must be one of {', '.join(POLICIES)}")
    return "policy", cast(Policy, raw)


def _body(raw: object) -> tuple[str, BodyForm]:
    if raw not in BODY_FORMS:
        raise InvalidWebhook(f"body must be one of {', '.join(BODY_FORMS)}")
    return "body", cast(BodyForm, raw)


def _rate(raw: object) -> tuple[str, float | None]:
    if raw is None:
        return "rate_per_second", None
    if not isinstance(raw, int | float) or isinstance(raw, bool) or not RATE_MIN <= raw <= RATE_MAX:
        raise InvalidWebhook(f"ratePerSecond must be a number from {RATE_MIN} to {RATE_MAX:.0f}")
    return "rate_per_second", float(raw)


def _headers(raw: object) -> tuple[str, dict[str, str]]:
    if raw is None:
        return "headers", {}
    if not isinstance(raw, Mapping) or len(raw) > HEADERS_MAX:
        raise InvalidWebhook(f"headers must be an object of up to {HEADERS_MAX} names and values")
    headers: dict[str, str] = {}
    for name, value in raw.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise InvalidWebhook(f"{str(name)[:100]!r} is not a valid header name")
        lowered = name.lower()
        if lowered in _RESERVED_HEADERS or lowered.startswith(_RESERVED_PREFIXES):
            raise InvalidWebhook(f"the header {name!r} is reserved and cannot be set")
        if not isinstance(value, str) or len(value) > HEADER_BYTES_MAX or not _HEADER_VALUE.fullmatch(value):
            raise InvalidWebhook(
                f"the value of the header {name!r} must have 1 to {HEADER_BYTES_MAX} printable ASCII characters"
            )
        if lowered in headers:
            raise InvalidWebhook(f"the header {name!r} is given twice")
        headers[lowered] = value
    return "headers", headers


def _description(raw: object) -> tuple[str, str]:
    text = "" if raw is None else raw
    if not isinstance(text, str) or len(text) > DESCRIPTION_LENGTH_MAX:
        raise InvalidWebhook(f"description must be a string of up to {DESCRIPTION_LENGTH_MAX} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidWebhook("description is not valid Unicode text") from None
    return "description", text


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_PARSERS: Mapping[str, Any] = {
    "url": lambda raw: ("url", checked_url(raw)),
    "policy": _policy,
    "types": _types,
    "filter": _filter,
    "ratePerSecond": _rate,
    "headers": _headers,
    "body": _body,
    "description": _description,
}
_OTHER_FIELDS = frozenset({"topics", "secret", "mode", "parallel", "takeOver"})
