"""kwire wire: decodes captured frames of the Kafka protocol, without a server."""

import argparse
from pathlib import Path

from kwire.cli.framework.output import add_output
from kwire.cli.framework.parser import CommandParser, add_verb
from kwire.exit_codes import CANNOT_RUN

DECODE = """\
Print captured frames of the Kafka protocol: every field of a request or response in its version, and the record
batches inside. A frame is a size of four bytes, followed by that many bytes. The input may contain many frames.
"""

DECODE_END = """\
The input is bytes, or hex in a common form: a hex stream, xxd, hexdump -C, od -A x -t x1, Wireshark's "copy as hex
dump", lists such as 0x00, 0x01. Copy only the TCP payload: packet headers would be read as frames.

A request contains its API and version; --api and --version select the requests to print. A response does not contain
them, so they must be given.

exit codes:
  0    every frame was decoded
  1    a frame is malformed; standard error names position and reason, the other frames are printed
  2    the input cannot be read, or options are missing

examples:
  kwire wire decode capture.bin
  kwire wire decode --hex '00 00 00 0f 00 12 00 00 00 00 00 01 00 05 6b 77 69 72 65'
  xxd -p frame.bin | kwire wire decode --response --api Metadata --version 12 -
  kwire wire decode capture.bin --api Produce -o json
"""


def add(parser: CommandParser) -> None:
    parser = add_verb(parser.verbs(), "decode", "print captured frames", _decode, description=DECODE, epilog=DECODE_END)
    parser.set_defaults(failure_code=CANNOT_RUN)
    parser.add_argument(
        "path", metavar="FILE", type=Path, nargs="?", help="frames, or a hex dump of frames; - is stdin"
    )
    parser.add_argument("--hex", metavar="TEXT", help="the frames themselves, instead of a file")
    direction = parser.add_mutually_exclusive_group()
    direction.add_argument("--request", action="store_true", help="frames that a client sent (default)")
    direction.add_argument("--response", action="store_true", help="frames that a server sent")
    parser.add_argument("--api", metavar="NAME|KEY", help="an API, such as Fetch or 1")
    parser.add_argument("--version", metavar="NUMBER", type=int, help="version of the API")
    parser.add_argument("--unframed", action="store_true", help="the input is one frame without its size")
    add_output(parser)


def _decode(options: argparse.Namespace) -> int:
    from kwire.cli.wire.decode import decode

    return decode(options)
