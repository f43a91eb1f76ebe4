"""kwire webhook: the commands a person types, against a whole node and a receiver."""

import asyncio
import base64
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from kwire.cli import main
from tests.support.node import in_loop
from tests.support.webhook_node import Hooks, hooks_node
from tests.support.webhook_receiver import Reply, receiving


class Printed(NamedTuple):
    code: int
    out: str
    errors: str


async def webhook(hooks: Hooks, *arguments: str) -> Printed:
    def run() -> Printed:
        out, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            code = main(["webhook", *arguments, "--http", hooks.http.url])
        return Printed(code, out.getvalue(), errors.getvalue())

    return await asyncio.to_thread(run)


@in_loop
async def test_a_webhook_from_its_making_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as receiver, hooks_node(tmp_path) as hooks:
        await hooks.create_topic("orders", "others")
        created = await webhook(
            hooks, "create", receiver.url, "orders", "others=latest", "--header", "X-A=b", "--policy", "retry"
        )
        assert created.code == 0, created.errors
        first, second, _ = created.out.split("\n")
        webhook_id = first.removeprefix("created ")
        assert second.startswith("secret whsec_")
        listed = await webhook(hooks, "list")
        assert [line.split()[:4] for line in listed.out.splitlines()][1:] == [
            [webhook_id, "active", "retry", "orders,others"]
        ]
        assert json.loads((await webhook(hooks, "list", "--topic", "nothing", "--json")).out) == []
        receiver.reply = lambda got: Reply(500 if got.json["payload"] == {"n": 2} else 200)
        await hooks.publish("orders", {"n": 1}, {"n": 2})
        await hooks.until({"id": webhook_id}, lambda one: one["deadLetters"] == 1)
        described = await webhook(hooks, "describe", webhook_id)
        assert "deadLetters: 1" in described.out
        assert described.out.splitlines()[-2].split() == ["orders", "orders-2", "0", "0"]
        deliveries = await webhook(hooks, "deliveries", webhook_id, "--failed", "--limit", "2")
        assert [line.split()[1:4] for line in deliveries.out.splitlines()[1:]] == [
            ["orders-2", "4", "500"],
            ["orders-2", "3", "500"],
        ]
        assert "orders-2" in (await webhook(hooks, "dead", webhook_id)).out
        receiver.reply = lambda got: Reply()
        assert (await webhook(hooks, "resend", webhook_id, "--dead")).out == "1 events queued to be sent again\n"
        await hooks.until({"id": webhook_id}, lambda one: one["deadLetters"] == 0)
        assert (await webhook(hooks, "resend", webhook_id, "orders-1")).out == "1 events queued to be sent again\n"
        replayed = await webhook(hooks, "replay", webhook_id, "--since-event", "orders-1")
        assert replayed.out == "sending again: orders after orders-1\n"
        assert (await webhook(hooks, "pause", webhook_id)).out == f"paused {webhook_id}\n"
        assert (await webhook(hooks, "resume", webhook_id)).out == f"resumed {webhook_id}\n"
        assert (await webhook(hooks, "rotate", webhook_id, "--overlap-hours", "1")).out.startswith("secret whsec_")
        secret = f"whsec_{base64.b64encode(b'0123456789' * 3).decode()}"
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{secret}\n"))
        rotated = await webhook(hooks, "rotate", webhook_id, "--secret-stdin")
        assert rotated.out == f"secret {secret}\n"
        assert (await webhook(hooks, "rotate", webhook_id, "--secret-stdin")).code == 2, "nothing is left to be read"
        assert (await webhook(hooks, "update", webhook_id, "--types", "made", "--body", "binary")).code == 0
        found = json.loads((await webhook(hooks, "describe", webhook_id, "--json")).out)
        assert (found["types"], found["body"]) == (["made"], "binary")
        tested = await webhook(hooks, "test", webhook_id)
        assert (tested.code, tested.out[:12]) == (0, "answered 200")
        receiver.answer(500)
        assert (await webhook(hooks, "test", webhook_id)).code == 1
        assert (await webhook(hooks, "delete", "--yes", webhook_id)).out == f"deleted {webhook_id}\n"
        gone = await webhook(hooks, "describe", webhook_id)
        assert gone.code == 1
        assert "WebhookNotFound" in gone.errors


@in_loop
async def test_what_is_asked_for_wrongly_is_told_in_words(tmp_path: Path) -> None:
    async with hooks_node(tmp_path) as hooks:
        await hooks.create_topic("orders")
        refused = await webhook(hooks, "create", "gopher://x", "orders")
        assert (refused.code, refused.errors.startswith("kwire: ")) == (1, True)
        assert (await webhook(hooks, "create", "https://x.example", "orders", "--header", "x")).code == 2
        assert "nothing to change" in (await webhook(hooks, "update", "x")).errors
        assert "give either event ids" in (await webhook(hooks, "resend", "x")).errors
