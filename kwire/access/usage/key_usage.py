"""KeyUsage: the use of the limits of all keys, started and stopped together."""

from kwire.access.keys.keys import Keys
from kwire.access.usage.event_allowances import EventAllowances
from kwire.access.usage.publish_rates import PublishRates
from kwire.access.usage.slot_leader import SlotLeader
from kwire.clock import Clock
from kwire.config.http_api import KEY, WebConfig
from kwire.metastore import MetaStore


class KeyUsage:
    """The counts of events, the publish rates and the subscription slots of keys."""

    def __init__(self, metastore: MetaStore, clock: Clock, keys: Keys, node_id: int) -> None:
        self.keys = keys
        self.events = EventAllowances(metastore, clock, lambda key_id: keys.get(key_id) is not None)
        self.rates = PublishRates()
        self.slots = SlotLeader(metastore, clock, f"node-{node_id}")
        keys.listen(self.events.forget)
        keys.listen(self.rates.forget)

    async def start(self, web: WebConfig) -> None:
        """Begin to count, if clients can log in with keys over HTTP."""
        if KEY not in web.authentication:
            return
        self.events.start()
        await self.slots.start()

    async def close(self) -> None:
        await self.slots.close()
        await self.events.close()
