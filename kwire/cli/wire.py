"""kwire wire: look at what goes over the wire, without a server."""

import argparse
from pathlib import Path

from kwire.cli.verbs import add_verb

DECODE = """\
Print captured frames of the Kafka protocol in words: every field of a request or response in its version, and the
record batches inside. A frame is a size of four bytes and so many bytes; any number of them may follow each other.
"""

DECODE_END = """\
Input is bytes, or hex as people copy it: a hex stream, xxd, hexdump -C, od -A x -t x1, Wireshark's "copy as hex dump",
0x00, 0x01 lists. Copy the payload of TCP only, or one packet's headers would be read as a frame.

A request says itself what it is; --api and --version then leave out all others. A response does not: name them.

exit codes:
  0    every frame was read
  1    a frame is malformed; where and why is on standard error, the others are printed
  2    the input cannot be read, or options are missing

examples:
  kwire wire decode capture.bin
  kwire wire decode --hex '00 00 00 0f 00 12 00 00 00 00 00 01 00 05 6b 77 69 72 65'
  xxd -p frame.bin | kwire wire decode --response --api Metadata --version 12 -
  kwire wire decode capture.bin --api Produce --json
"""


def add(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="verb")
    parser = add_verb(verbs, "decode", "print captured frames", _decode, description=DECODE, epilog=DECODE_END)
    parser.add_argument("path", metavar="FILE", type=Path, nargs="?", help="frames or a hex dump of them; - is stdin")
    parser.add_argument("--hex", metavar="TEXT", help="the frames themselves, instead of a file")
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument("--request", action="store_true", help="frames that a client sent (default)")
    direction.add_argument("--response", action="store_true", help="frames that a server sent")
    parser.add_argument("--api", metavar="NAME|KEY", help="an API, like Fetch or 1")
    parser.add_argument("--version", metavar="NUMBER", type=int, help="its version")
    parser.add_argument("--unframed", action="store_true", help="the input is one frame without its size")
    parser.add_argument("--json", action="store_true", help="print one JSON object per frame")


def _decode(options: argparse.Namespace) -> int:
    from kwire.cli.wire_decode import decode

    return decode(options)
