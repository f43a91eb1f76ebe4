"""The main program of a worker process: reads pickled calls from its input and writes their pickled results.

`kwire.concurrency.worker_process` starts this program as `python -m kwire.concurrency.worker`. The program has no event
loop. A call imports the modules that it needs. The program exits when its input ends, even in the middle of a call,
because a worker that outlives its server could write into folders that the next server uses.
"""

import os
import pickle
import queue
import signal
import struct
import threading
from collections.abc import Sequence
from typing import IO, Any

from kwire.errors import as_value

FRAME = struct.Struct(">Q")
# The header of a message: the size of the pickle, and the number of buffers after it. Before each buffer is a FRAME
# with the size of the buffer.
HEAD = struct.Struct(">QQ")

# A pickled object, and the large values of the object that are not copied into the pickle.
Message = tuple[bytes, list[bytes]]
# The worker has a low priority, so that the server, which clients wait for, runs first.
NICENESS = 10


def read_message(source: IO[bytes]) -> Message | None:
    """Read the next message. Returns None if the input has ended, even in the middle of a message."""
    head = source.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    size_bytes, count = HEAD.unpack(head)
    pickled = source.read(size_bytes)
    if len(pickled) < size_bytes:
        return None
    buffers: list[bytes] = []
    for _ in range(count):
        frame = source.read(FRAME.size)
        if len(frame) < FRAME.size:
            return None
        (size_bytes,) = FRAME.unpack(frame)
        buffers.append(source.read(size_bytes))
        if len(buffers[-1]) < size_bytes:
            return None
    return pickled, buffers


def write_message(target: IO[bytes], pickled: bytes, buffers: Sequence[bytes] = ()) -> None:
    target.write(HEAD.pack(len(pickled), len(buffers)))
    target.write(pickled)
    for buffer in buffers:
        target.write(FRAME.pack(len(buffer)))
        target.write(buffer)
    target.flush()


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles Ctrl-C
    os.nice(NICENESS)
    calls: queue.SimpleQueue[Message] = queue.SimpleQueue()
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # output of print must not mix with the results
        threading.Thread(target=_take_calls, args=(calls,), daemon=True).start()
        while True:
            write_message(answers, _answer(*calls.get()))


def _take_calls(calls: "queue.SimpleQueue[Message]") -> None:
    with os.fdopen(0, "rb") as source:
        while (call := read_message(source)) is not None:
            calls.put(call)
    os._exit(0)


def _answer(call: bytes, buffers: list[bytes]) -> bytes:
    result: Any
    try:
        function, args = pickle.loads(call, buffers=buffers)
        result = (True, function(*args))
    except Exception as error:
        # `as_value` removes the traceback, which would keep the arguments in memory until a garbage collection.
        result = (False, as_value(error))
    try:
        return pickle.dumps(result)
    except Exception as error:
        return pickle.dumps((False, RuntimeError(f"the result cannot be pickled: {error!r}")))


if __name__ == "__main__":
    main()
