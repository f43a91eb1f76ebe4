"""KeyUsage: the use of the limits of all keys, started and stopped together."""

from kwire.access.keys.keys import Keys
from kwire.access.principal import KEY as KEY_PRINCIPAL
from kwire.access.principal import Principal
from kwire.access.usage.client_limits import ClientLimits
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
        self._clock = clock
        self.events = EventAllowances(metastore, clock, lambda key_id: keys.get(key_id) is not None)
        self.rates = PublishRates()
        self.slots = SlotLeader(metastore, clock, f"node-{node_id}")
        keys.listen(self.events.forget)
        keys.listen(self.rates.forget)

    def limits_of(self, principal: Principal) -> ClientLimits | None:
        """Return the limits of a client; None if it has not logged in with a key."""
        if principal.type != KEY_PRINCIPAL:
            return None
        key = self.keys.get(principal.name)
        return None if key is None else ClientLimits(self, key, self._clock.monotonic)

    async def start(self, web: WebConfig) -> None:
        """Begin to decide about slots, if clients can log in with keys over HTTP."""
        self.events.start()
        if KEY in web.authentication:
            await self.slots.start()

    async def close(self) -> None:
        await self.slots.close()
        await self.events.close()
