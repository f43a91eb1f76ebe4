"""Kill a process as soon as its log file grows beyond a position: `python -m … PATH POSITION PID`.

A process of its own, which waits for no turn: it sees an append some microseconds after it was made, before anybody can
have been told of it. It says `ready` once it watches.
"""

import os
import signal
import struct
import sys
import time

# Where a batch says how long it is; a file is extended by zeros, so that anything else is a batch.
LENGTH_POSITION, LENGTH_BYTES = 8, 4
WATCH_TIMEOUT_S = 60.0


def main() -> None:
    path, position, pid = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    log = os.open(path, os.O_RDONLY)
    deadline = time.monotonic() + WATCH_TIMEOUT_S
    print("ready", flush=True)
    while time.monotonic() < deadline:
        length = os.pread(log, LENGTH_BYTES, position + LENGTH_POSITION)
        if len(length) == LENGTH_BYTES and struct.unpack(">i", length)[0] != 0:
            os.kill(pid, signal.SIGKILL)
            return
    sys.exit("nothing was appended")


if __name__ == "__main__":
    main()
