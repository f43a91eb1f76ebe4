"""Kafka's own message classes in one long-lived JVM: what they make of bytes, of JSON, and of nothing.

`compat/java/MessageOracle.java` says how questions and answers travel. They go in batches, because a pipe costs more
per turn than a message per parse.
"""

import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

COMPAT_JAVA = Path(__file__).resolve().parents[2] / "compat" / "java"
# The first start fetches and compiles.
START_TIMEOUT_S = 600.0
BATCH_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
BATCH_QUESTIONS_MAX = 1_000

PARSE, BUILD, INVENT, VERSIONS, HEADERS = range(5)
# What a header says besides key and version.
CORRELATION_ID, CLIENT_ID = 77, "me"
# How many things the answer to each question holds.
ANSWERS = {PARSE: 2, BUILD: 2, INVENT: 3, VERSIONS: 1, HEADERS: 2}


class Question(NamedTuple):
    what: int
    name: str
    version: int
    body: bytes


class Refused(NamedTuple):
    """Kafka's classes threw this."""

    why: str


Answer = tuple[bytes, ...] | Refused


def message_jars() -> Path:
    """The folder of the jars with Kafka's message classes, fetched once into the user's cache."""
    done = subprocess.run(
        [str(COMPAT_JAVA / "fetch")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=START_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{COMPAT_JAVA / 'fetch'} failed:\n{done.stdout}\n{done.stderr}"
    return Path(done.stdout.strip().splitlines()[-1])


class MessageOracle:
    """One JVM. It is asked from one thread; a batch that takes too long ends it, and with it the wait."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [str(COMPAT_JAVA / "message_oracle")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._timeout_s = START_TIMEOUT_S

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)
        self._process.stdout.close()

    def ask(self, questions: Iterable[Question]) -> list[Answer]:
        """The answers, in the order of the questions."""
        waiting = iter(questions)
        answers: list[Answer] = []
        while batch := list(islice(waiting, BATCH_QUESTIONS_MAX)):
            answers += self._ask(batch)
        return answers

    def _ask(self, batch: Sequence[Question]) -> Iterator[Answer]:
        assert self._process.stdin is not None
        sent = b"".join(map(_encoded, batch))
        watchdog = threading.Timer(self._timeout_s, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(struct.pack(">i", len(sent)) + sent)
            self._process.stdin.flush()
            (size,) = struct.unpack(">i", self._read(4))
            answer = self._read(size)
        finally:
            watchdog.cancel()
        self._timeout_s = BATCH_TIMEOUT_S
        return _answers(batch, answer)

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        read = self._process.stdout.read(size)
        assert len(read) == size, "the JVM ended before it had answered"
        return read


def _encoded(question: Question) -> bytes:
    name = question.name.encode()
    head = struct.pack(f">bh{len(name)}shi", question.what, len(name), name, question.version, len(question.body))
    return head + question.body


def _answers(batch: Sequence[Question], data: bytes) -> Iterator[Answer]:
    position = 0

    def taken(size: int) -> bytes:
        nonlocal position
        position += size
        return data[position - size : position]

    for question in batch:
        is_answered = taken(1) == b"\1"
        blobs = [taken(*struct.unpack(">i", taken(4))) for _ in range(ANSWERS[question.what] if is_answered else 1)]
        yield tuple(blobs) if is_answered else Refused(blobs[0].decode())
    assert position == len(data)
