"""The other side of a worker process: takes pickled calls from its input, answers with what came of them.

Started by `kwire.broker.worker_process` as `python -m kwire.broker.worker`. It knows nothing of event loops; a call
imports what it needs. It ends when its input does, in the middle of a call too: a worker that outlives its server
would write into folders that the next server works in.
"""

import os
import pickle
import queue
import signal
import struct
import threading
from typing import IO, Any

FRAME = struct.Struct(">Q")
# What clients wait for comes first.
NICENESS = 10


def read_frame(source: IO[bytes]) -> bytes | None:
    """The next message, or None at the end."""
    head = source.read(FRAME.size)
    if len(head) < FRAME.size:
        return None
    (size_bytes,) = FRAME.unpack(head)
    body = source.read(size_bytes)
    return body if len(body) == size_bytes else None


def write_frame(target: IO[bytes], body: bytes) -> None:
    target.write(FRAME.pack(len(body)) + body)
    target.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt of the terminal is the server's to handle
    os.nice(NICENESS)
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what anybody prints is no answer
        threading.Thread(target=_take_calls, args=(calls,), daemon=True).start()
        while True:
            write_frame(answers, _answer(calls.get()))


def _take_calls(calls: "queue.SimpleQueue[bytes]") -> None:
    with os.fdopen(0, "rb") as source:
        while (call := read_frame(source)) is not None:
            calls.put(call)
    os._exit(0)


def _answer(call: bytes) -> bytes:
    result: Any
    try:
        function, args = pickle.loads(call)
        result = (True, function(*args))
    except Exception as error:
        result = (False, error)
    try:
        return pickle.dumps(result)
    except Exception as error:
        return pickle.dumps((False, RuntimeError(f"the answer cannot be sent: {error!r}")))


if __name__ == "__main__":
    main()
