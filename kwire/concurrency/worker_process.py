"""A process beside the server for work that runs Python per record: in a thread it would take turns with the loop.

One process, started at the first call, run at low priority, started anew if it died, and ended when nobody has called
for a while, which gives back what it took. Calls are done one after the other. A call is a function of a module (found
again by its name on the other side) and arguments that can be pickled; what it raises is raised here.
"""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeVar, cast

from kwire.broker.worker import read_frame, write_frame

P = ParamSpec("P")
R = TypeVar("R")

IDLE_SECONDS = 60.0
# A worker ends with its input; one that does not is killed.
END_SECONDS = 5.0


class WorkerDied(Exception):
    """The process went away in the middle of a call: killed, or out of memory. The next call starts another one.

    `code` is what it ended with, as `subprocess` has it; None if nobody knows.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class WorkerProcess:
    """Used from the event loop. `starts` counts the processes, `deaths` those that did not end by themselves."""

    def __init__(self) -> None:
        # Talks to the process in the loop's place; one, so calls queue up here.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worker")
        self._process: subprocess.Popen[bytes] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._waiting_count = 0
        self._is_closed = False
        self.starts = 0
        self.deaths = 0

    @property
    def pid(self) -> int | None:
        """Of the process, while there is one."""
        process = self._process
        return process.pid if process is not None else None

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """What `function` returns or raises over there; `WorkerDied` if there is no telling.

        Cancelling gives up the answer, not the work: that goes on until it is done or `close` is called.
        """
        if kwargs:
            raise TypeError("a worker takes positional arguments")
        if self._is_closed:
            raise WorkerDied("the worker is closed")
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        loop = asyncio.get_running_loop()
        self._waiting_count += 1
        call = loop.run_in_executor(self._thread, self._call, function, args)
        call.add_done_callback(self._done)
        succeeded, result = await call
        if not succeeded:
            raise cast(Exception, result)
        return cast(R, result)

    def _done(self, call: "asyncio.Future[tuple[bool, object]]") -> None:
        self._waiting_count -= 1
        if not self._waiting_count and not self._is_closed:
            self._idle_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._rest)

    def _rest(self) -> None:
        self._thread.submit(self._end)

    async def close(self) -> None:
        """End the process, whatever it does."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        process = self._process
        if process is not None:
            process.kill()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._end)
        self._thread.shutdown(wait=True)

    # --- in the thread

    def _call(self, function: Callable[..., object], args: tuple[object, ...]) -> tuple[bool, object]:
        if self._is_closed:
            raise WorkerDied("the worker is closed")
        # Before anything is sent: what cannot be pickled is the caller's mistake.
        call = pickle.dumps((function, args))
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_frame(process.stdin, call)
            answer = read_frame(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            code = self._end()
            self.deaths += 1
            raise WorkerDied(f"the worker ended with {code} during {function.__name__}", code)
        succeeded, result = pickle.loads(answer)
        return succeeded, result

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kwire.broker.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.starts += 1
        if self._is_closed:
            self._process.kill()  # `close` came while there was nothing to kill yet
        return self._process

    def _end(self) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(OSError):
            process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        return process.returncode
