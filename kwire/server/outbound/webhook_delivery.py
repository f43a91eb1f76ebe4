"""Webhooks with all that they need of a node: who sends, who takes notes, and the machine between them.

Loaded late: aiohttp takes longer to load than everything else, and Kafka clients need not wait for it.
"""

import asyncio
from functools import partial

from kwire.broker.events.publishing import Publisher
from kwire.broker.topics import Topics
from kwire.broker.webhooks.audit import AuditTopic
from kwire.broker.webhooks.webhooks import Webhooks
from kwire.clock import Clock
from kwire.config import WebhooksConfig
from kwire.descriptors import WEBHOOKS, Descriptors
from kwire.metastore import MetaStore
from kwire.server.address_rules import AddressRules
from kwire.server.webhook_sender import WebhookSender


class WebhookDelivery:
    """At work from `open` to `close`. `webhooks` is for the doors."""

    def __init__(
        self,
        topics: Topics,
        metastore: MetaStore,
        clock: Clock,
        config: WebhooksConfig,
        descriptors: Descriptors,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._sender = WebhookSender(
            rules_of(config),
            clock,
            may_keep=partial(descriptors.admit, WEBHOOKS),
            connections_max=config.connections_max,
            connections_per_host_max=config.connections_per_host_max,
        )
        self._audit = AuditTopic(topics, Publisher(clock, loop.call_soon))
        self.webhooks = Webhooks(
            topics=topics,
            metastore=metastore,
            clock=clock,
            send=self._sender.send,
            config=config,
            audit=self._audit,
            call_soon=loop.call_soon,
            call_later=loop.call_later,
            check_url=self._sender.check_url,
        )

    async def open(self) -> None:
        await self.webhooks.open()

    async def close(self) -> None:
        """What is under way may end if it does so soon; what it comes to is written down."""
        await self.webhooks.close()
        await self._sender.close()
        await self._audit.close()


def rules_of(config: WebhooksConfig) -> AddressRules:
    return AddressRules(
        is_private_allowed=config.is_private_allowed, is_http_allowed=config.is_http_allowed, ports=config.ports
    )
