"""An event loop that runs in its own thread, for programs without an event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from kwire.client.errors import ClientClosed

T = TypeVar("T")


class LoopThread:
    """Runs coroutines in an event loop that has its own thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kwire client", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for its result."""
        if self._loop.is_closed():
            work.close()
            raise ClientClosed("the client was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C ends the wait with KeyboardInterrupt. Then the coroutine must end too.
            future.cancel()
            raise

    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
