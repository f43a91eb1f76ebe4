"""Creates and connects the objects for webhook delivery: the sender and the webhooks.

A server imports this module after the Kafka port is open, because importing aiohttp takes longer than the rest of the
start.
"""

import asyncio
from functools import partial

from kwire.access.audit.entries import Audit
from kwire.access.authorizer import Authorizer
from kwire.clock import Clock
from kwire.config import WebhooksConfig
from kwire.descriptors import WEBHOOKS, Descriptors
from kwire.server.outbound.address_rules import AddressRules
from kwire.server.outbound.webhook_sender import WebhookSender
from kwire.streams.topic_directory import TopicFinder
from kwire.streams.webhooks.webhooks import Webhooks, WebhookStorage


class WebhookDelivery:
    """The webhook delivery of a process. It is active from `open` to `close`. The APIs use `webhooks`."""

    def __init__(
        self,
        topics: TopicFinder,
        storage: WebhookStorage,
        clock: Clock,
        config: WebhooksConfig,
        descriptors: Descriptors,
        authorizer: Authorizer,
        audit: Audit,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._sender = WebhookSender(
            rules_of(config),
            clock,
            may_keep=partial(descriptors.admit, WEBHOOKS),
            connections_max=config.connections_max,
            connections_per_host_max=config.connections_per_host_max,
        )
        self.webhooks = Webhooks(
            topics=topics,
            storage=storage,
            clock=clock,
            send=self._sender.send,
            config=config,
            audit=audit,
            authorizer=authorizer,
            call_soon=loop.call_soon,
            call_later=loop.call_later,
            check_url=self._sender.check_url,
        )

    async def open(self) -> None:
        await self.webhooks.open()

    async def close(self) -> None:
        """Stop the delivery. Running deliveries have a short time to end, and their results are stored."""
        await self.webhooks.close()
        await self._sender.close()


def rules_of(config: WebhooksConfig) -> AddressRules:
    return AddressRules(
        is_private_allowed=config.is_private_allowed, is_http_allowed=config.is_http_allowed, ports=config.ports
    )
