"""kwire webhook: make, change, watch and repair webhooks of a running server, over its HTTP port."""

import argparse
import json
from typing import Any
from urllib.parse import quote, urlencode

from kwire.cli.http_client import HttpClient, http_verb
from kwire.cli.verbs import print_rows

PAGE = 1000
# Of the delivery log and of dead letters, unless more are asked for.
SHOWN_DEFAULT = 50
WEBHOOK_COLUMNS = ("id", "state", "policy", "topics", "url", "delivered", "failed", "dead")
PLACE_COLUMNS = ("topic", "last", "pending", "retrying")
ATTEMPT_COLUMNS = ("at", "event", "attempt", "status", "ms", "outcome", "next", "problem")
DEAD_COLUMNS = ("event", "type", "attempts", "at", "status", "problem")


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    listing = http_verb(verbs, "list", "name every webhook", list_webhooks)
    listing.add_argument("--topic", help="only those that want events of this topic")
    creating = http_verb(verbs, "create", "have the events of topics sent to a URL", create)
    creating.add_argument("url", metavar="URL")
    creating.add_argument(
        "topics", metavar="TOPIC[=EVENT_ID]", nargs="+", help="from the beginning, after an event, or =latest"
    )
    creating.add_argument("--secret", metavar="whsec_…", help="default: one is made, and told this once")
    _add_fields(creating)
    describing = http_verb(verbs, "describe", "show settings and how far a webhook is", describe)
    changing = http_verb(verbs, "update", "change settings", update)
    changing.add_argument("--url", metavar="URL")
    changing.add_argument("--topics", metavar="TOPIC[=EVENT_ID]", nargs="+", help="those that stay keep their place")
    deleting = http_verb(verbs, "delete", "delete webhooks", delete)
    deleting.add_argument("ids", metavar="ID", nargs="+")
    pausing = http_verb(verbs, "pause", "send nothing for a while", pause)
    resuming = http_verb(verbs, "resume", "go on where it was paused or disabled", resume)
    rotating = http_verb(verbs, "rotate", "replace the secret", rotate)
    rotating.add_argument("--secret", metavar="whsec_…", help="default: one is made")
    rotating.add_argument("--overlap-hours", type=float, metavar="HOURS", help="how long the old one still signs")
    logging = http_verb(verbs, "deliveries", "show the latest attempts", deliveries)
    logging.add_argument("--failed", action="store_true", help="only those that failed")
    logging.add_argument("--limit", type=int, default=SHOWN_DEFAULT, metavar="N")
    burying = http_verb(verbs, "dead", "show events that could not be delivered", dead)
    burying.add_argument("--limit", type=int, default=SHOWN_DEFAULT, metavar="N")
    resending = http_verb(verbs, "resend", "send events again", resend)
    resending.add_argument("id", metavar="ID")
    resending.add_argument("events", metavar="EVENT_ID", nargs="*")
    resending.add_argument("--dead", action="store_true", help="all dead letters")
    replaying = http_verb(verbs, "replay", "send everything again from a place on", replay)
    replaying.add_argument("--topic", help="default: all topics of the webhook")
    since = replaying.add_mutually_exclusive_group(required=True)
    since.add_argument("--since-event", metavar="EVENT_ID", help="the events after this one")
    since.add_argument("--since-time", metavar="TIME", help="ISO 8601; UTC if it has no zone")
    since.add_argument("--from-beginning", action="store_true")
    testing = http_verb(verbs, "test", "send one test delivery now and show what came of it", test)
    _add_fields(changing)
    for one in (describing, changing, pausing, resuming, rotating, logging, burying, replaying, testing):
        one.add_argument("id", metavar="ID")


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", choices=["retry", "remove"], help="after a failure (default: retry)")
    parser.add_argument("--types", metavar="TYPE", nargs="+", help="event types that are wanted (default: all)")
    parser.add_argument("--filter", metavar="EXPRESSION", help="what an event has to satisfy")
    parser.add_argument("--mode", choices=["ordered", "parallel"])
    parser.add_argument("--parallel", type=int, metavar="N", help="how many at a time")
    parser.add_argument("--rate", type=float, metavar="N", help="deliveries per second")
    parser.add_argument("--header", metavar="NAME=VALUE", action="append", default=[], help="sent along; repeatable")
    parser.add_argument("--body", choices=["event", "binary", "structured"], help="plain JSON or CloudEvents")
    parser.add_argument("--description", metavar="TEXT")


# --- definitions


def list_webhooks(client: HttpClient, options: argparse.Namespace) -> None:
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        query = {"limit": PAGE, "after": after} | ({"topic": options.topic} if options.topic else {})
        page = client.ask("GET", f"/webhooks?{urlencode(query)}")
        found += page["webhooks"]
        after = page["next"]
    if options.json:
        print(json.dumps(found))
        return
    print_rows([_row(one) for one in found], WEBHOOK_COLUMNS, options)


def create(client: HttpClient, options: argparse.Namespace) -> None:
    body = {"url": options.url, "topics": _places(options.topics), **_fields(options)}
    if options.secret is not None:
        body["secret"] = options.secret
    made = client.ask("POST", "/webhooks", body)
    if options.json:
        print(json.dumps(made))
        return
    print(f"created {made['id']}")
    print(f"secret {made['secret']}")


def describe(client: HttpClient, options: argparse.Namespace) -> None:
    found = client.ask("GET", _path(options.id))
    if options.json:
        print(json.dumps(found))
        return
    places = found.pop("topics")
    for name, value in found.items():
        if value not in (None, "", [], {}):
            print(f"{name}: {value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)}")
    rows = [
        {"topic": topic, "last": one["lastEventId"], "pending": one["pending"], "retrying": one["retrying"]}
        for topic, one in sorted(places.items())
    ]
    print_rows(rows, PLACE_COLUMNS, options)


def update(client: HttpClient, options: argparse.Namespace) -> None:
    body = _fields(options)
    if options.url is not None:
        body["url"] = options.url
    if options.topics is not None:
        body["topics"] = _places(options.topics)
    if not body:
        raise ValueError("say what is to be changed")
    _told(client.ask("PATCH", _path(options.id), body), f"updated {options.id}", options)


def delete(client: HttpClient, options: argparse.Namespace) -> None:
    for one in options.ids:
        _told(client.ask("DELETE", _path(one)), f"deleted {one}", options)


def pause(client: HttpClient, options: argparse.Namespace) -> None:
    _told(client.ask("POST", _path(options.id, "pause")), f"paused {options.id}", options)


def resume(client: HttpClient, options: argparse.Namespace) -> None:
    _told(client.ask("POST", _path(options.id, "resume")), f"resumed {options.id}", options)


def rotate(client: HttpClient, options: argparse.Namespace) -> None:
    body = {}
    if options.secret is not None:
        body["secret"] = options.secret
    if options.overlap_hours is not None:
        body["overlapHours"] = options.overlap_hours
    rotated = client.ask("POST", _path(options.id, "rotate-secret"), body)
    _told(rotated, f"secret {rotated['secret']}", options)


# --- deliveries


def deliveries(client: HttpClient, options: argparse.Namespace) -> None:
    query = {"limit": options.limit} | ({"failed": "true"} if options.failed else {})
    found = client.ask("GET", f"{_path(options.id, 'deliveries')}?{urlencode(query)}")["attempts"]
    if options.json:
        print(json.dumps(found))
        return
    rows = [
        {
            "at": one["at"],
            "event": one["eventId"],
            "attempt": one["attempt"],
            "status": one["status"],
            "ms": one["durationMs"],
            "outcome": one["outcome"],
            "next": one["nextAt"],
            "problem": one["problem"],
        }
        for one in found
    ]
    print_rows(rows, ATTEMPT_COLUMNS, options)


def dead(client: HttpClient, options: argparse.Namespace) -> None:
    found = client.ask("GET", f"{_path(options.id, 'dead-letters')}?{urlencode({'limit': options.limit})}")
    letters = found["deadLetters"]
    if options.json:
        print(json.dumps(letters))
        return
    print_rows([{**one, "event": one["eventId"]} for one in letters], DEAD_COLUMNS, options)


def resend(client: HttpClient, options: argparse.Namespace) -> None:
    if options.dead == bool(options.events):
        raise ValueError("name events, or say --dead for all dead letters")
    if options.dead:
        told = client.ask("POST", _path(options.id, "dead-letters/resend"), {})
    else:
        told = client.ask("POST", _path(options.id, "resend"), {"eventIds": options.events})
    _told(told, f"{told['queued']} events are sent again", options)


def replay(client: HttpClient, options: argparse.Namespace) -> None:
    body: dict[str, Any] = {"topic": options.topic} if options.topic is not None else {}
    if options.since_event is not None:
        body["sinceEventId"] = options.since_event
    elif options.since_time is not None:
        body["sinceTime"] = options.since_time
    else:
        body["fromBeginning"] = True
    told = client.ask("POST", _path(options.id, "replay"), body)
    places = ", ".join(f"{topic} after {last or 'nothing'}" for topic, last in sorted(told["topics"].items()))
    _told(told, f"sending again: {places}", options)


def test(client: HttpClient, options: argparse.Namespace) -> int:
    """Ends with 1 if the receiver did not take it."""
    told = client.ask("POST", _path(options.id, "test"))
    answered = f"answered {told['status']}" if told["status"] is not None else "no answer"
    problem = f": {told['problem']}" if told["problem"] else ""
    _told(told, f"{answered} after {told['durationMs']} ms{problem}", options)
    return 0 if told["success"] else 1


# --- words


def _path(webhook_id: str, below: str = "") -> str:
    path = f"/webhooks/{quote(webhook_id, safe='')}"
    return f"{path}/{below}" if below else path


def _told(answer: Any, words: str, options: argparse.Namespace) -> None:
    print(json.dumps(answer) if options.json else words)


def _places(texts: list[str]) -> dict[str, str | None]:
    """`orders`, `orders=orders-7` or `orders=latest`."""
    return {topic: last or None for topic, _, last in (text.partition("=") for text in texts)}


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    given = {
        "policy": options.policy,
        "types": options.types,
        "filter": options.filter,
        "mode": options.mode,
        "parallel": options.parallel,
        "ratePerSecond": options.rate,
        "body": options.body,
        "description": options.description,
    }
    fields = {name: value for name, value in given.items() if value is not None}
    headers = {}
    for text in options.header:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--header takes NAME=VALUE, not {text!r}")
        headers[name] = value
    return fields | ({"headers": headers} if headers else {})


def _row(webhook: dict[str, Any]) -> dict[str, Any]:
    return {**webhook, "topics": ",".join(sorted(webhook["topics"])), "dead": webhook["deadLetters"]}
