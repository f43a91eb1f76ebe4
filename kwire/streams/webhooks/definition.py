"""What a webhook is: where events go, which of them, how fast, and what happens when that fails. It never changes; a
change makes another one.

In requests and answers the fields have these names, and no others are taken:

| field | |
|---|---|
| `url` | where each event is POSTed to |
| `topics` | topic to the id of the last event that is known, null for everything, `"latest"` for what is new |
| `policy` | `retry` by a schedule, then dead letter; `remove`: the first failure ends the webhook |
| `types` | event types that are wanted; none: all |
| `filter` | an expression (`expression.py`) that an event has to satisfy |
| `mode` | `ordered`: one event of a topic after the other, a failed one holds up those behind it; or `parallel` |
| `parallel` | how many at a time in the mode `parallel`; failed ones are tried again beside the others |
| `ratePerSecond` | deliveries that may begin per second |
| `headers` | of one's own, sent along |
| `body` | `event`, `binary` or `structured` (`bodies.py`) |
| `secret` | `whsec_…`; one is made if none is given |
| `description` | words for people |
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, cast, get_args
from urllib.parse import urlsplit

from kwire.broker.events.event import TYPE_BYTES_MAX, Event, time_text
from kwire.broker.topic_names import NAME_LENGTH_MAX
from kwire.broker.webhooks.bodies import BODY_FORMS, BodyForm
from kwire.broker.webhooks.expression import Expression
from kwire.broker.webhooks.signing import SIGNING_HEADERS, InvalidSecret, SigningSecret, SigningSecrets
from kwire.errors import InvalidWebhook

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

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}", re.ASCII)
# Blanks inside are fine; anything that could end a line is not.
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?", re.ASCII)
# What the message or HTTP itself says.
_RESERVED_HEADERS = SIGNING_HEADERS | {
    *("host", "content-length", "content-type", "content-encoding", "transfer-encoding", "te", "trailer", "upgrade"),
    *("connection", "keep-alive", "proxy-connection", "proxy-authorization", "expect", "accept-encoding"),
}
_RESERVED_PREFIXES = ("ce-", "webhook-")


class TopicStart(NamedTuple):
    """Where reading of a topic begins. A place that was written down counts only with the same mark: it is another one
    whenever a topic is added to a webhook."""

    topic_id: bytes
    offset: int
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """See the module's words. `parallel` is 1 when it is ordered; `reason` says why it is paused or disabled."""

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

    def wants(self, topic: str, event: Event) -> bool:
        if self.types and event.type not in self.types:
            return False
        return self.filter is None or self.filter.matches(topic, event)

    def changed(self, **values: Any) -> Self:
        return replace(self, **values)

    # --- written down

    def stored(self) -> dict[str, object]:
        """For the metadata store, secrets included."""
        return {
            "url": self.url,
            "topics": {
                name: {"topic_id": start.topic_id.hex(), "offset": start.offset, "mark": start.mark}
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
        }

    @classmethod
    def of_stored(cls, webhook_id: str, value: Mapping[str, Any]) -> Self:
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
            **given,
        )

    # --- shown

    def shown(self) -> dict[str, object]:
        """For answers: no secret is in it."""
        return {
            "id": self.webhook_id,
            "url": self.url,
            "policy": self.policy,
            "types": sorted(self.types),
            "filter": self.filter.text if self.filter else None,
            "mode": "ordered" if self.is_ordered else "parallel",
            "parallel": self.parallel,
            "ratePerSecond": self.rate_per_second,
            # A value may be a password.
            "headers": dict.fromkeys(self.headers, "…"),
            "body": self.body,
            "description": self.description,
            "state": self.state,
            "reason": self.reason,
            "createdAt": time_text(self.created_ms),
        }


class Asked(NamedTuple):
    """What a request says, checked: `values` are attributes of a definition; `topics` are as the request has them."""

    values: Mapping[str, Any]
    # Topic to the id of the last event that is known, None for the beginning, LATEST for the end.
    topics: Mapping[str, str | None] | None
    secret: str | None


def parse_webhook(raw: object, *, is_new: bool = True) -> Asked:
    """The fields of a request; raises InvalidWebhook. A change (`is_new` False) says only what is to be another."""
    if not isinstance(raw, Mapping):
        raise InvalidWebhook("a webhook is a JSON object")
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
            raise InvalidWebhook("secret has to be a text")
        if not is_new:
            raise InvalidWebhook("a secret is not changed but rotated, so that the old one is still good for a while")
        checked_secrets(secret)
    return Asked(values, topics, secret)


def checked_secrets(secret: str | None) -> SigningSecrets:
    """With one that is made if none is given; raises InvalidWebhook."""
    try:
        return SigningSecrets.first(secret)
    except InvalidSecret as error:
        raise InvalidWebhook(str(error)) from None


def checked_url(url: object) -> str:
    """Its form alone: whether it may be sent to is for others to say. Raises InvalidWebhook."""
    if not isinstance(url, str) or not url or len(url) > URL_LENGTH_MAX:
        raise InvalidWebhook(f"url has to be a text of 1 to {URL_LENGTH_MAX} characters")
    if any(ord(one) <= 0x20 or ord(one) == 0x7F for one in url) or "\\" in url:
        raise InvalidWebhook("url has characters that no URL has")
    try:
        parts = urlsplit(url)
        host = parts.hostname
        parts.port  # noqa: B018  raises for what is no port
    except ValueError:
        raise InvalidWebhook("url is no URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidWebhook("url has to begin with https:// or http:// and a host")
    if parts.username is not None or parts.password is not None:
        raise InvalidWebhook("url may not hold a name and password: use headers")
    if parts.fragment:
        raise InvalidWebhook("url may not have a fragment: it would not be sent")
    return url


def _parse_mode(raw: Mapping[str, Any], values: dict[str, Any]) -> None:
    """`mode` and `parallel` are two words for one thing."""
    if "mode" not in raw and "parallel" not in raw:
        return
    mode, parallel = raw.get("mode"), raw.get("parallel")
    if mode not in (None, "ordered", "parallel"):
        raise InvalidWebhook("mode has to be ordered or parallel")
    if parallel is not None and not (_is_int(parallel) and 1 <= parallel <= PARALLEL_MAX):
        raise InvalidWebhook(f"parallel has to be a number from 1 to {PARALLEL_MAX}")
    is_ordered = mode == "ordered" or (mode is None and parallel == 1)
    if is_ordered and parallel not in (None, 1):
        raise InvalidWebhook("parallel is for the mode parallel: ordered is one at a time")
    values["is_ordered"] = is_ordered
    values["parallel"] = 1 if is_ordered else parallel or PARALLEL_DEFAULT


def _topics(raw: object) -> dict[str, str | None]:
    if isinstance(raw, Sequence) and not isinstance(raw, str | bytes):
        named: Mapping[object, object] = {name: None for name in raw if isinstance(name, str)}
        if len(named) != len(raw):
            raise InvalidWebhook("topics has to name each topic once")
    elif isinstance(raw, Mapping):
        named = raw
    else:
        raise InvalidWebhook("topics has to be an object of topics and event ids, or a list of topics")
    if not 1 <= len(named) <= TOPICS_MAX:
        raise InvalidWebhook(f"{len(named)} topics are given; it needs 1 to {TOPICS_MAX}")
    topics: dict[str, str | None] = {}
    for name, last in named.items():
        if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH_MAX:
            raise InvalidWebhook(f"the name of a topic has 1 to {NAME_LENGTH_MAX} characters")
        if last is not None and not isinstance(last, str):
            raise InvalidWebhook(f"the place in {name!r} has to be an event id, null or {LATEST!r}")
        topics[name] = last
    return topics


def _types(raw: object) -> tuple[str, frozenset[str]]:
    if raw is None:
        return "types", frozenset()
    if not isinstance(raw, list) or len(raw) > TYPES_MAX:
        raise InvalidWebhook(f"types has to be a list of up to {TYPES_MAX} event types")
    for one in raw:
        if not isinstance(one, str) or not 0 < len(one) <= TYPE_BYTES_MAX:
            raise InvalidWebhook(f"an event type has 1 to {TYPE_BYTES_MAX} characters")
    return "types", frozenset(raw)


def _filter(raw: object) -> tuple[str, Expression | None]:
    if raw is None or raw == "":
        return "filter", None
    if not isinstance(raw, str):
        raise InvalidWebhook("filter has to be a text")
    return "filter", Expression(raw)


def _policy(raw: object) -> tuple[str, Policy]:
    if raw not in POLICIES:
        raise InvalidWebhook(f"policy has to be one of {', '.join(POLICIES)}")
    return "policy", cast(Policy, raw)


def _body(raw: object) -> tuple[str, BodyForm]:
    if raw not in BODY_FORMS:
        raise InvalidWebhook(f"body has to be one of {', '.join(BODY_FORMS)}")
    return "body", cast(BodyForm, raw)


def _rate(raw: object) -> tuple[str, float | None]:
    if raw is None:
        return "rate_per_second", None
    if not isinstance(raw, int | float) or isinstance(raw, bool) or not RATE_MIN <= raw <= RATE_MAX:
        raise InvalidWebhook(f"ratePerSecond has to be a number from {RATE_MIN} to {RATE_MAX:.0f}")
    return "rate_per_second", float(raw)


def _headers(raw: object) -> tuple[str, dict[str, str]]:
    if raw is None:
        return "headers", {}
    if not isinstance(raw, Mapping) or len(raw) > HEADERS_MAX:
        raise InvalidWebhook(f"headers has to be an object of up to {HEADERS_MAX} names and values")
    headers: dict[str, str] = {}
    for name, value in raw.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise InvalidWebhook(f"{str(name)[:100]!r} is no name of a header")
        lowered = name.lower()
        if lowered in _RESERVED_HEADERS or lowered.startswith(_RESERVED_PREFIXES):
            raise InvalidWebhook(f"the header {name!r} is not for a webhook to set")
        if not isinstance(value, str) or len(value) > HEADER_BYTES_MAX or not _HEADER_VALUE.fullmatch(value):
            raise InvalidWebhook(
                f"the header {name!r} needs a value of 1 to {HEADER_BYTES_MAX} printable ASCII characters"
            )
        if lowered in headers:
            raise InvalidWebhook(f"the header {name!r} is given twice")
        headers[lowered] = value
    return "headers", headers


def _description(raw: object) -> tuple[str, str]:
    text = "" if raw is None else raw
    if not isinstance(text, str) or len(text) > DESCRIPTION_LENGTH_MAX:
        raise InvalidWebhook(f"description has to be a text of up to {DESCRIPTION_LENGTH_MAX} characters")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidWebhook("description is no valid text") from None
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
_OTHER_FIELDS = frozenset({"topics", "secret", "mode", "parallel"})
