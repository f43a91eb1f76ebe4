"""kwire webhook: create, change, inspect and repair webhooks of a running server, over its HTTP port."""

import argparse
import json
import sys
from typing import Any
from urllib.parse import quote, urlencode

from kwire.cli.connection.http_client import HttpClient, add_http_verb
from kwire.cli.framework.confirmation import add_yes, confirm, counted_names
from kwire.cli.framework.errors import UsageError
from kwire.cli.framework.output import is_data, print_data, print_object, print_rows
from kwire.cli.framework.parser import CommandParser
from kwire.cli.framework.printable import printable
from kwire.cli.framework.several_names import for_each

PAGE = 1000
# The default number of delivery attempts or dead letters that are printed.
SHOWN_DEFAULT = 50
SECRET_CHARACTERS_MAX = 1000
WEBHOOK_COLUMNS = ("id", "state", "policy", "topics", "url", "delivered", "failed", "dead")
POSITION_COLUMNS = ("topic", "last", "pending", "retrying")
ATTEMPT_COLUMNS = ("at", "event", "attempt", "status", "ms", "outcome", "next", "problem")
DEAD_COLUMNS = ("event", "type", "attempts", "at", "status", "problem")


def add(parser: CommandParser) -> None:
    verbs = parser.verbs()
    list_ = add_http_verb(verbs, "list", "list webhooks", list_webhooks)
    list_.add_argument("--topic", help="only webhooks for this topic")
    create_ = add_http_verb(verbs, "create", "send the events of topics to a URL", create)
    create_.add_argument("url", metavar="URL")
    create_.add_argument(
        "topics",
        metavar="TOPIC[=EVENT_ID]",
        nargs="+",
        help="start at the oldest event, after an event (=EVENT_ID), or with new events (=latest)",
    )
    _add_secret(create_, "generated, and printed only this once")
    _add_fields(create_)
    describe_ = add_http_verb(verbs, "describe", "show the settings and positions of a webhook", describe)
    update_ = add_http_verb(verbs, "update", "change settings", update)
    update_.add_argument("--url", metavar="URL")
    update_.add_argument(
        "--topics",
        metavar="TOPIC[=EVENT_ID]",
        nargs="+",
        help="the new list of topics; topics that stay in it keep their position",
    )
    delete_ = add_http_verb(verbs, "delete", "delete webhooks", delete)
    delete_.add_argument("ids", metavar="ID", nargs="+")
    add_yes(delete_)
    pause_ = add_http_verb(verbs, "pause", "stop sending until the webhook is resumed", pause)
    resume_ = add_http_verb(verbs, "resume", "continue a paused or disabled webhook at its position", resume)
    rotate_ = add_http_verb(verbs, "rotate", "replace the secret", rotate)
    _add_secret(rotate_, "generated")
    rotate_.add_argument(
        "--overlap-hours", type=float, metavar="HOURS", help="how long the old secret is still used to sign"
    )
    deliveries_ = add_http_verb(verbs, "deliveries", "show the latest delivery attempts", deliveries)
    deliveries_.add_argument("--failed", action="store_true", help="only failed attempts")
    deliveries_.add_argument("--limit", type=int, default=SHOWN_DEFAULT, metavar="N", help="(default %(default)s)")
    dead_ = add_http_verb(verbs, "dead", "show dead letters: events that could not be delivered", dead)
    dead_.add_argument("--limit", type=int, default=SHOWN_DEFAULT, metavar="N", help="(default %(default)s)")
    resend_ = add_http_verb(verbs, "resend", "send events again", resend)
    resend_.add_argument("id", metavar="ID")
    resend_.add_argument("events", metavar="EVENT_ID", nargs="*")
    resend_.add_argument("--dead", action="store_true", help="send all dead letters again")
    replay_ = add_http_verb(verbs, "replay", "send all events again from a position", replay)
    replay_.add_argument("--topic", help="default: all topics of the webhook")
    since = replay_.add_mutually_exclusive_group(required=True)
    since.add_argument("--since-event", metavar="EVENT_ID", help="the events after this one")
    since.add_argument(
        "--since-time", metavar="TIME", help="events from this time on, in ISO 8601; UTC without a time zone"
    )
    since.add_argument("--from-beginning", action="store_true", help="all stored events")
    test_ = add_http_verb(verbs, "test", "send one test delivery now and show its outcome", test)
    _add_fields(update_)
    for one in (describe_, update_, pause_, resume_, rotate_, deliveries_, dead_, replay_, test_):
        one.add_argument("id", metavar="ID")


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        choices=["retry", "remove"],
        help="what to do after a failed delivery: retry, or remove the webhook (default: retry)",
    )
    parser.add_argument("--types", metavar="TYPE", nargs="+", help="event types to send (default: all)")
    parser.add_argument("--filter", metavar="EXPRESSION", help="condition for events to send")
    parser.add_argument("--mode", choices=["ordered", "parallel"], help="send events in order, or in parallel")
    parser.add_argument("--parallel", type=int, metavar="N", help="deliveries at the same time")
    parser.add_argument("--rate", type=float, metavar="N", help="deliveries per second, at most")
    parser.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], help="an HTTP header to send; repeatable"
    )
    parser.add_argument(
        "--body",
        choices=["event", "binary", "structured"],
        help="the body: the event as JSON, or CloudEvents in binary or structured mode",
    )
    parser.add_argument("--description", metavar="TEXT")


# --- definitions


def _add_secret(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument(
        "--secret-stdin",
        action="store_true",
        help=f"read the secret (whsec_…) from the first line of standard input (default: {default})",
    )


def _given_secret() -> str:
    """Return the secret on standard input. As an argument, other users of the machine could see it."""
    secret = sys.stdin.readline(SECRET_CHARACTERS_MAX).strip()
    if not secret:
        raise UsageError("--secret-stdin: standard input is empty")
    return secret


def list_webhooks(client: HttpClient, options: argparse.Namespace) -> None:
    found: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        query = {"limit": PAGE, "after": after} | ({"topic": options.topic} if options.topic else {})
        page = client.request("GET", f"/webhooks?{urlencode(query)}")
        found += page["webhooks"]
        after = page["next"]
    if is_data(options):
        print_data(found, options)
        return
    print_rows([_row(one) for one in found], WEBHOOK_COLUMNS, options)


def create(client: HttpClient, options: argparse.Namespace) -> None:
    body = {"url": options.url, "topics": _start_positions(options.topics), **_fields(options)}
    if options.secret_stdin:
        body["secret"] = _given_secret()
    made = client.request("POST", "/webhooks", body)
    if is_data(options):
        print_data(made, options)
        return
    print(f"created {made['id']}")
    print(f"secret {made['secret']}")


def describe(client: HttpClient, options: argparse.Namespace) -> None:
    found = client.request("GET", _path(options.id))
    if is_data(options):
        print_data(found, options)
        return
    positions = found.pop("topics")
    for name, value in found.items():
        if value not in (None, "", [], {}):
            shown = value if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)
            print(printable(f"{name}: {shown}"))
    rows = [
        {"topic": topic, "last": one["lastEventId"], "pending": one["pending"], "retrying": one["retrying"]}
        for topic, one in sorted(positions.items())
    ]
    print_rows(rows, POSITION_COLUMNS, options)


def update(client: HttpClient, options: argparse.Namespace) -> None:
    body = _fields(options)
    if options.url is not None:
        body["url"] = options.url
    if options.topics is not None:
        body["topics"] = _start_positions(options.topics)
    if not body:
        raise UsageError("nothing to change: give at least one option, such as --url")
    _print_answer(client.request("PATCH", _path(options.id), body), f"updated {options.id}", options)


def delete(client: HttpClient, options: argparse.Namespace) -> int:
    confirm(f"delete {counted_names('webhook', options.ids)}", options)

    def delete_one(webhook_id: str) -> None:
        client.request("DELETE", _path(webhook_id))

    return for_each(options.ids, delete_one).finish("deleted", options)


def pause(client: HttpClient, options: argparse.Namespace) -> None:
    _print_answer(client.request("POST", _path(options.id, "pause")), f"paused {options.id}", options)


def resume(client: HttpClient, options: argparse.Namespace) -> None:
    _print_answer(client.request("POST", _path(options.id, "resume")), f"resumed {options.id}", options)


def rotate(client: HttpClient, options: argparse.Namespace) -> None:
    body = {}
    if options.secret_stdin:
        body["secret"] = _given_secret()
    if options.overlap_hours is not None:
        body["overlapHours"] = options.overlap_hours
    rotated = client.request("POST", _path(options.id, "rotate-secret"), body)
    _print_answer(rotated, f"secret {rotated['secret']}", options)


# --- deliveries


def deliveries(client: HttpClient, options: argparse.Namespace) -> None:
    query = {"limit": options.limit} | ({"failed": "true"} if options.failed else {})
    found = client.request("GET", f"{_path(options.id, 'deliveries')}?{urlencode(query)}")["attempts"]
    if is_data(options):
        print_data(found, options)
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
    found = client.request("GET", f"{_path(options.id, 'dead-letters')}?{urlencode({'limit': options.limit})}")
    letters = found["deadLetters"]
    if is_data(options):
        print_data(letters, options)
        return
    print_rows([{**one, "event": one["eventId"]} for one in letters], DEAD_COLUMNS, options)


def resend(client: HttpClient, options: argparse.Namespace) -> None:
    if options.dead == bool(options.events):
        raise UsageError("give either event ids, or --dead for all dead letters")
    if options.dead:
        answer = client.request("POST", _path(options.id, "dead-letters/resend"), {})
    else:
        answer = client.request("POST", _path(options.id, "resend"), {"eventIds": options.events})
    _print_answer(answer, f"{answer['queued']} events queued to be sent again", options)


def replay(client: HttpClient, options: argparse.Namespace) -> None:
    body: dict[str, Any] = {"topic": options.topic} if options.topic is not None else {}
    if options.since_event is not None:
        body["sinceEventId"] = options.since_event
    elif options.since_time is not None:
        body["sinceTime"] = options.since_time
    else:
        body["fromBeginning"] = True
    answer = client.request("POST", _path(options.id, "replay"), body)
    starts = ", ".join(f"{topic} {_start_text(last)}" for topic, last in sorted(answer["topics"].items()))
    _print_answer(answer, f"sending again: {starts}", options)


def test(client: HttpClient, options: argparse.Namespace) -> int:
    """Send a test delivery. Return exit code 1 if the receiver did not accept it."""
    outcome = client.request("POST", _path(options.id, "test"))
    answered = f"answered {outcome['status']}" if outcome["status"] is not None else "no answer"
    problem = f": {outcome['problem']}" if outcome["problem"] else ""
    _print_answer(outcome, f"{answered} after {outcome['durationMs']} ms{problem}", options)
    return 0 if outcome["success"] else 1


# --- helpers


def _path(webhook_id: str, below: str = "") -> str:
    path = f"/webhooks/{quote(webhook_id, safe='')}"
    return f"{path}/{below}" if below else path


def _start_text(last_event_id: str | None) -> str:
    return f"after {last_event_id}" if last_event_id else "from the beginning"


def _print_answer(answer: Any, text: str, options: argparse.Namespace) -> None:
    print_object(answer, options, lambda: print(printable(text)))


def _start_positions(texts: list[str]) -> dict[str, str | None]:
    """Parse start positions such as `orders`, `orders=orders-7` or `orders=latest`.

    Return the start of each topic: an event id, "latest", or None for the oldest event.
    """
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
            raise UsageError(f"--header: expected NAME=VALUE, got {text!r}")
        headers[name] = value
    return fields | ({"headers": headers} if headers else {})


def _row(webhook: dict[str, Any]) -> dict[str, Any]:
    return {**webhook, "topics": ",".join(sorted(webhook["topics"])), "dead": webhook["deadLetters"]}
