"""Secrets of webhooks in the metadata store: encrypted, also those of older versions, and never lost with the key."""

import base64
import errno
from collections.abc import Mapping
from pathlib import Path

import pytest

from kwire.access.secrets.key_file import KEY_BYTES, read_key_file
from kwire.access.secrets.node_keys import ENCRYPTED, KEY_FILE_NAME
from kwire.errors import KafkaError, WebhookConflict
from kwire.metastore import Change
from kwire.streams.webhooks.definition import Definition, parse_webhook
from kwire.streams.webhooks.definition_secrets import DEFINITIONS_PER_CHUNK
from kwire.streams.webhooks.definition_store import HISTORY_KEY
from storage.errors import DiskFailure
from tests.support.hooked_node import hooked
from tests.support.node import QuietNode, in_loop

URL = "https://hooks.example.com/in?token=planted-query"
SECRET = "whsec_" + base64.b64encode(b"planted-signing-secret-0123456789").decode()
HEADERS = {"x-token": "planted-header"}
FIELDS = {"url": URL, "secret": SECRET, "headers": HEADERS}


async def prepare(node: QuietNode) -> None:
    await node.event_store.open()
    await node.create_event_topic("orders")


async def restart(node: QuietNode) -> None:
    await node.event_store.close()
    node.restart()
    await node.event_store.open()


def key_file(node: QuietNode) -> Path:
    return node.directory / KEY_FILE_NAME


def journal(node: QuietNode) -> bytes:
    return (node.directory / "metastore.journal").read_bytes()


def has_plain_text(node: QuietNode) -> bool:
    """Whether a secret is in the journal, as it is or inside other base64."""
    signing_key = SECRET.removeprefix("whsec_")
    return any(text.encode() in journal(node) for text in ("planted", signing_key))


def secrets_of(definition: Definition) -> tuple[str, Mapping[str, str], str]:
    return definition.url, definition.headers, definition.secrets.current


async def store_in_plain_text(node: QuietNode, count: int = 1) -> list[str]:
    """Store definitions as older versions did. Returns their ids."""
    async with hooked(node) as one:
        definitions = [(await one.register(**FIELDS)).definition for _ in range(count)]
        for definition in definitions:
            entry = node.metastore.get(f"webhooks/{definition.webhook_id}")
            assert entry is not None
            change = Change(f"webhooks/{definition.webhook_id}", definition.stored(), entry.revision)
            await node.metastore.commit([change])
    marker = node.metastore.get(HISTORY_KEY)
    assert marker is not None
    await node.metastore.commit([Change(HISTORY_KEY, None, marker.revision)])
    key_file(node).unlink()
    return [one.webhook_id for one in definitions]


def rotate(node: QuietNode) -> None:
    path = key_file(node)
    path.write_bytes(base64.b64encode(b"n" * KEY_BYTES) + b"\n" + path.read_bytes())


@in_loop
async def test_secrets_are_encrypted_and_survive_a_restart(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        made = (await one.register(**FIELDS)).definition
    assert not has_plain_text(node)
    await restart(node)
    async with hooked(node) as one:
        found = one.webhooks.get(made.webhook_id).definition
        assert secrets_of(found) == secrets_of(made) == (URL, HEADERS, SECRET)
        assert found == made
        await one.webhooks.change(made.webhook_id, parse_webhook({"headers": {"x": "planted-2"}}, is_new=False))
        await one.webhooks.rotate_secret(made.webhook_id)
    assert not has_plain_text(node)


@in_loop
async def test_without_webhooks_there_is_no_key(node: QuietNode) -> None:
    await prepare(node)
    before = node.metastore.revision
    async with hooked(node):
        pass
    assert node.metastore.revision == before
    assert not key_file(node).exists()


@in_loop
async def test_plain_text_of_older_versions_is_encrypted_and_leaves_the_journal(node: QuietNode) -> None:
    await prepare(node)
    ids = await store_in_plain_text(node, DEFINITIONS_PER_CHUNK + 3)
    assert has_plain_text(node)
    await restart(node)
    async with hooked(node) as one:
        assert not has_plain_text(node)
        for webhook_id in ids:
            assert secrets_of(one.webhooks.get(webhook_id).definition) == (URL, HEADERS, SECRET)
        revision = node.metastore.revision
    await restart(node)
    async with hooked(node) as one:
        # There is nothing left to do.
        assert node.metastore.revision == revision
        assert secrets_of(one.webhooks.get(ids[-1]).definition) == (URL, HEADERS, SECRET)


@in_loop
async def test_plain_text_of_a_webhook_that_was_removed_leaves_the_journal(node: QuietNode) -> None:
    await prepare(node)
    (webhook_id,) = await store_in_plain_text(node)
    key = f"webhooks/{webhook_id}"
    entry = node.metastore.get(key)
    assert entry is not None
    await node.metastore.commit([Change(key, None, entry.revision)])
    assert has_plain_text(node)
    await restart(node)
    async with hooked(node):
        assert not has_plain_text(node)
        # No secret is stored, so no key is needed.
        assert not key_file(node).exists()


@in_loop
async def test_a_failed_rewrite_of_the_journal_is_repeated_at_the_next_start(
    node: QuietNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await prepare(node)
    (webhook_id,) = await store_in_plain_text(node)

    async def fail() -> None:
        raise DiskFailure("the disk is full", errno.ENOSPC)

    monkeypatch.setattr(node.metastore, "erase_history", fail)
    async with hooked(node) as one:
        assert secrets_of(one.webhooks.get(webhook_id).definition) == (URL, HEADERS, SECRET)
        assert "the next start encrypts them: the disk is full" in caplog.text
        # A new webhook does not make the server believe that the history was erased.
        await one.register(**FIELDS)
    assert has_plain_text(node)
    await restart(node)
    async with hooked(node):
        assert not has_plain_text(node)


@in_loop
async def test_without_its_key_a_webhook_is_disabled_and_comes_back_with_the_key(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        made = (await one.register(**FIELDS)).definition
    before = node.metastore.get(f"webhooks/{made.webhook_id}")
    kept = key_file(node).read_bytes()
    other_key = base64.b64encode(b"x" * KEY_BYTES) + b"\n"
    problems = ((None, "is missing"), (other_key, "is not in the key file"), (b"damaged", "cannot be used"))
    for count, (content, reason) in enumerate(problems, start=1):
        if content is None:
            key_file(node).unlink()
        else:
            key_file(node).write_bytes(content)
        await restart(node)
        async with hooked(node) as one:
            locked = one.webhooks.get(made.webhook_id).definition
            assert (locked.state, locked.url) == ("disabled", "https://hooks.example.com")
            assert "its secrets cannot be decrypted" in locked.reason
            assert reason in locked.reason
            for attempt in (
                one.webhooks.resume(made.webhook_id),
                one.webhooks.rotate_secret(made.webhook_id),
                one.webhooks.change(made.webhook_id, parse_webhook({"url": URL}, is_new=False)),
                one.webhooks.test(made.webhook_id),
            ):
                with pytest.raises(WebhookConflict, match="cannot be decrypted"):
                    await attempt
            assert (await one.until_audited("webhook.disabled", count))[-1]["reason"] == locked.reason
            if content != other_key:
                with pytest.raises(KafkaError, match="the webhook cannot be stored"):
                    await one.register(**FIELDS)
        assert (key_file(node).read_bytes() if key_file(node).exists() else None) == content
        assert node.metastore.get(f"webhooks/{made.webhook_id}") == before
    key_file(node).write_bytes(kept)
    await restart(node)
    async with hooked(node) as one:
        assert one.webhooks.get(made.webhook_id).definition == made


@in_loop
async def test_a_webhook_without_its_key_can_be_deleted_and_then_a_new_key_is_created(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        made = (await one.register(**FIELDS)).definition
    key_file(node).unlink()
    await restart(node)
    async with hooked(node) as one:
        await one.webhooks.remove(made.webhook_id)
        again = (await one.register(**FIELDS)).definition
        assert secrets_of(again) == (URL, HEADERS, SECRET)
    assert key_file(node).exists()


@in_loop
async def test_a_start_with_a_new_key_encrypts_everything_with_it(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        made = (await one.register(**FIELDS)).definition
    rotate(node)
    new, old = read_key_file(str(key_file(node)))
    assert old.key_id.encode() in journal(node)
    await restart(node)
    async with hooked(node) as one:
        assert one.webhooks.get(made.webhook_id).definition == made
    assert new.key_id.encode() in journal(node)
    assert old.key_id.encode() not in journal(node)
    # The old key is no longer needed.
    key_file(node).write_bytes(base64.b64encode(new.raw))
    await restart(node)
    async with hooked(node) as one:
        assert one.webhooks.get(made.webhook_id).definition == made


@in_loop
async def test_encrypted_values_cannot_be_swapped(node: QuietNode) -> None:
    await prepare(node)
    async with hooked(node) as one:
        first, second = [(await one.register(**FIELDS)).definition for _ in range(2)]
    changes = []
    for definition, other in ((first, second), (second, first)):
        entry, source = (node.metastore.get(f"webhooks/{one.webhook_id}") for one in (definition, other))
        assert entry is not None
        assert source is not None
        value = {**entry.value, ENCRYPTED: {**entry.value[ENCRYPTED], "url": source.value[ENCRYPTED]["url"]}}
        changes.append(Change(f"webhooks/{definition.webhook_id}", value, entry.revision))
    await node.metastore.commit(changes)
    await restart(node)
    async with hooked(node) as one:
        for definition in (first, second):
            assert "belongs to another entry" in one.webhooks.get(definition.webhook_id).definition.locked
