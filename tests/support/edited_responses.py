"""Responses of a cluster that are changed on their way to the client: what a kwire server never answers."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kwire.kafka_client.connection import Connection
from kwire.wire.schema import Api

# Called with a request and its response. Returns the response that the client gets, or None if it gets none at all.
Edit = Callable[[Any, Any], Any]


def edit_responses(monkeypatch: pytest.MonkeyPatch, edits: dict[Api, Edit]) -> None:
    """From now on, change the responses of these APIs."""
    send = Connection.send

    def send_edited(connection: Connection, api: Api, message: Any, **options: Any) -> "asyncio.Future[Any]":
        pending = send(connection, api, message, **options)
        edit = edits.get(api)
        if edit is None:
            return pending
        edited: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def arrived(response: "asyncio.Future[Any]") -> None:
            if edited.done() or response.cancelled():
                edited.cancel()
            elif (error := response.exception()) is not None:
                edited.set_exception(error)
            elif (result := edit(message, response.result())) is not None:
                edited.set_result(result)

        pending.add_done_callback(arrived)
        return edited

    monkeypatch.setattr(Connection, "send", send_edited)
