"""Large pieces of memory that threads have used return to the system."""

import subprocess
import sys

MIB = 1024 * 1024
THREADS = 4
PIECE_BYTES = 30 * MIB

# Each thread takes a large piece twice: glibc learns from the first how large pieces are.
PROGRAM = f"""
import sys, threading
from kwire.server.free_memory import bound_heap

def anonymous_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

if sys.argv[1] == "bounded":
    bound_heap()
before = anonymous_bytes()

def work():
    for _ in range(2):
        piece = bytearray(b"x") * {PIECE_BYTES}
        del piece

for _ in range({THREADS}):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
threads = [threading.Thread(target=work) for _ in range({THREADS})]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(anonymous_bytes() - before)
"""


def kept_bytes(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, timeout=60, check=True)
    return int(done.stdout)


def test_large_pieces_return_to_the_system() -> None:
    assert kept_bytes("bounded") < 10 * MIB
