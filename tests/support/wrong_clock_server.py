"""kwire on a machine whose clock is wrong: `python -m tests.support.wrong_clock_server SECONDS serve ...`.

The server's wall clock is SECONDS ahead of the machine's, or behind it if the number is negative. Run as a program.
"""

import sys
import time

from kwire.cli import main
from kwire.clock import SystemClock

if __name__ == "__main__":
    difference_ms = int(sys.argv[1]) * 1000
    SystemClock.now_ms = lambda self: time.time_ns() // 1_000_000 + difference_ms  # type: ignore[method-assign]
    sys.exit(main(sys.argv[2:]))
