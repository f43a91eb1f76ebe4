"""WorkerProcess: runs functions in a separate process, for work that executes Python code for each record.

In a thread, such work would compete with the event loop for the GIL. The first call starts the process, which runs at
low priority. If the process has died, the next call starts a new one. After IDLE_SECONDS without a call, the process is
stopped to release its memory.

Calls run one after the other. A call consists of a module-level function, which the worker imports by its name, and of
arguments that can be pickled. If the function raises an exception, it is raised in the caller.
"""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import ParamSpec, TypeGuard, TypeVar, cast

from kwire.concurrency.worker import read_message, write_message

P = ParamSpec("P")
R = TypeVar("R")

# The process is stopped after this time without a call.
IDLE_SECONDS = 60.0
# A bytes argument of at least this size is not copied into the pickle, because the copy would hold the GIL.
LARGE_BYTES = 64 * 1024
# A worker exits when its input is closed. If it has not exited after this time, it is killed.
END_SECONDS = 5.0


def _is_large(arg: object) -> TypeGuard[bytes]:
    return type(arg) is bytes and len(arg) >= LARGE_BYTES


class WorkerDied(Exception):
    """The process ended in the middle of a call, or the WorkerProcess is closed.

    A process ends in the middle of a call if it is killed or out of memory, for example. The next call starts a new
    process. `code` is the return code of the process as `subprocess` reports it, or None if it is not known.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class WorkerProcess:
    """Runs functions in one worker process. Use it only in the event loop's thread.

    `starts` is the number of processes that were started, `deaths` the number that ended in the middle of a call.
    """

    def __init__(self, idle_seconds: float | None = None) -> None:
        self._idle_seconds = idle_seconds
        # The thread that exchanges messages with the process. It is the only one, so calls wait in its queue.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="worker")
        self._process: subprocess.Popen[bytes] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._waiting_count = 0
        self._is_closed = False
        self.starts = 0
        self.deaths = 0

    @property
    def pid(self) -> int | None:
        """The id of the process, or None if no process is started."""
        process = self._process
        return process.pid if process is not None else None

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `function` in the worker process and return its result. Raises its exception, or `WorkerDied`.

        If the caller is cancelled, a call that has not begun is dropped. A function that has begun runs until it ends
        or `close` is called, and its result is dropped.
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
        if succeeded:
            return cast(R, result)
        try:
            raise cast(Exception, result)
        finally:
            # The traceback of the exception refers to this frame. If the frame also referred to the exception, this
            # cycle would keep the arguments in memory until a garbage collection.
            del call, result

    def _done(self, call: "asyncio.Future[tuple[bool, object]]") -> None:
        self._waiting_count -= 1
        if not self._waiting_count and not self._is_closed:
            idle_seconds = IDLE_SECONDS if self._idle_seconds is None else self._idle_seconds
            self._idle_timer = asyncio.get_running_loop().call_later(idle_seconds, self._end_idle)

    def _end_idle(self) -> None:
        self._thread.submit(self._end)

    async def close(self) -> None:
        """Kill the process, even in the middle of a call."""
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
        # Pickle the call before anything is sent, so that only the caller fails if an argument cannot be pickled.
        buffers = [arg for arg in args if _is_large(arg)]
        given = [pickle.PickleBuffer(arg) if _is_large(arg) else arg for arg in args]
        call = pickle.dumps((function, given), 5, buffer_callback=lambda _: None)
        process = self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            write_message(process.stdin, call, buffers)
            answer = read_message(process.stdout)
        except OSError:
            answer = None
        if answer is None:
            code = self._end()
            self.deaths += 1
            raise WorkerDied(f"the worker ended with {code} during {function.__name__}", code)
        succeeded, result = pickle.loads(answer[0])
        return succeeded, result

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kwire.concurrency.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.starts += 1
        if self._is_closed:
            self._process.kill()  # `close` was called before the process existed
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
