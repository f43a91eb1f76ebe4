"""The formats of log lines: times with offsets, fields, one object per line, and nothing that a client can forge."""

import json
import logging
import sys
from datetime import datetime
from typing import Any

import pytest

from kwire.logs.line_formats import MESSAGE_LENGTH_MAX, VALUE_LENGTH_MAX, JsonFormat, TextFormat
from kwire.logs.log_context import FIELDS_ATTRIBUTE, RequestContext, set_request
from tests.support.node import in_loop


class Url:
    path = "/rooms/lobby/events"


def record(message: str, *values: object, level: int = logging.INFO, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("kwire.test", level, "", 0, message, values, None)
    setattr(made, FIELDS_ATTRIBUTE, fields)
    return made


def failed_record() -> logging.LogRecord:
    try:
        raise OSError("no\nspace")
    except OSError:
        return logging.LogRecord("kwire.test", logging.ERROR, "", 0, "it failed", (), sys.exc_info())


def decoded(one: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormat().format(one)
    assert "\n" not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_line_of_text_has_time_with_offset_level_logger_and_message() -> None:
    time, level, logger, message = TextFormat(has_colour=False).format(record("topic %s", "orders")).split(" ", 3)
    moment = datetime.fromisoformat(time)
    assert moment.tzinfo is not None
    assert abs(moment.timestamp() - datetime.now().timestamp()) < 60
    assert (level, logger, message) == ("INFO", "kwire.test:", "topic orders")


def test_a_line_of_json_has_the_same_and_the_fields_of_the_call() -> None:
    line = decoded(record("topic %s", "orders", connection=3, correlation_id=7))
    assert datetime.fromisoformat(line.pop("time")).tzinfo is not None
    assert line == {
        "level": "INFO",
        "logger": "kwire.test",
        "message": "topic orders",
        "connection": 3,
        "correlation_id": 7,
    }


def test_the_text_has_the_fields_too() -> None:
    assert TextFormat(has_colour=False).format(record("closed", connection=3)).endswith(": closed (connection=3)")


@in_loop
async def test_the_lines_of_a_request_have_its_id_method_and_path() -> None:
    set_request(RequestContext("abc", "POST", Url()))
    line = decoded(record("it failed"))
    assert (line["request_id"], line["method"], line["path"]) == ("abc", "POST", "/rooms/lobby/events")


def test_fields_never_replace_those_of_the_line() -> None:
    assert decoded(record("right", logger="wrong"))["logger"] == "kwire.test"


def test_an_error_is_a_field_with_its_traceback() -> None:
    error = decoded(failed_record())["error"]
    assert (error["type"], error["message"]) == ("OSError", "no\nspace")
    assert "Traceback" in error["traceback"]


FORGED = "x\n2026-11-18T00:00:00.000+00:00 ERROR kwire: forged\r\x1b[2J\u2028\ud800"


def test_no_client_can_forge_a_line_or_control_the_terminal() -> None:
    text = TextFormat(has_colour=False).format(record("login of user %s failed", FORGED, client=FORGED))
    first, *more = text.split("\n")
    assert all(line.startswith("    ") for line in more)
    assert first.endswith("login of user x")
    assert not set("\r\x1b\u2028\ud800") & set(text)
    text.encode()
    assert decoded(record("%s", FORGED))["message"].startswith("x\n2026")


def test_long_texts_are_shortened() -> None:
    line = decoded(record("%s", "x" * 2 * MESSAGE_LENGTH_MAX, client="y" * 2 * VALUE_LENGTH_MAX))
    assert len(line["message"]) == MESSAGE_LENGTH_MAX + 1
    assert len(line["client"]) == VALUE_LENGTH_MAX + 1


def test_a_value_that_json_lacks_is_shown_as_text() -> None:
    assert decoded(record("m", value=Url))["value"].startswith("<class")


@pytest.mark.parametrize("level", [logging.WARNING, logging.ERROR, logging.CRITICAL])
def test_colour_is_only_where_it_is_wanted(level: int) -> None:
    assert "\x1b" not in TextFormat(has_colour=False).format(record("m", level=level))
    assert "\x1b[" in TextFormat(has_colour=True).format(record("m", level=level))
