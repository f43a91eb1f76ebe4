"""An event loop in a thread, for programs that have none."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from kwire.client.errors import ClientClosed

T = TypeVar("T")


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kwire client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop.is_closed():
            work.close()
            raise ClientClosed("the client was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C ends the wait here; the work over there must not go on without anybody.
            future.cancel()
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
