"""Loads the certificates of all listeners again when their files change."""

import asyncio
import logging
from collections.abc import Mapping, Sequence

from kwire.access.tls import LoadedContext, TlsListener
from kwire.concurrency.disk_lanes import Lane, LaneClosed
from kwire.config.tls import TlsConfig

log = logging.getLogger("kwire.tls")

# The interval between two checks of the files.
CHECK_SECONDS = 3.0


async def load_listeners(configs: Mapping[str, TlsConfig], lane: Lane) -> dict[str, TlsListener]:
    """Load the certificates of listeners, by their names, in a disk lane. Raises ValueError."""
    listeners: dict[str, TlsListener] = {}
    for name, config in configs.items():
        listeners[name] = listener = TlsListener(config)
        listener.use(await lane.run(listener.load))
    return listeners


class TlsReload:
    """Checks the files of all listeners every CHECK_SECONDS, in a disk lane."""

    def __init__(self, listeners: Sequence[TlsListener], lane: Lane) -> None:
        self._listeners = listeners
        self._lane = lane
        self._task = asyncio.create_task(self._run())

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for listener in self._listeners:
                await self._check(listener)

    async def _check(self, listener: TlsListener) -> None:
        try:
            loaded: LoadedContext | None = await self._lane.run(listener.load_if_changed)
        except LaneClosed:
            return
        except Exception as error:
            # Also an error that no code expects must not end the checks.
            await self._lane.run(listener.report_failure, error)
            return
        if loaded is not None:
            listener.use(loaded)
