"""Records the corpus: stock clients send typical requests to a server, through a proxy that records them."""

import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import defaultdict
from pathlib import Path

from fuzzing.clients import CLIENTS
from fuzzing.corpus import FOLDER, call_of, file_name
from fuzzing.recorder import HOST, Recorder
from kwire.wire.apis import APIS

FRAMES_PER_CALL = 3
FRAME_BYTES_MAX = 2_000
CORPUS_BYTES_MAX = 300_000
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
# Matches paths and host names of the capturing machine. Frames that contain them are not added to the corpus.
FOREIGN = re.compile(rb"/[a-z]+/[a-z]+/|\.local\b|\.lan\b")


def capture() -> int:
    with tempfile.TemporaryDirectory() as folder, Recorder() as recorder:
        server = _start(Path(folder), recorder.port)
        try:
            recorder.target_port = _port(server)
            for name, run in CLIENTS.items():
                before = len(recorder.frames)
                run(f"{HOST}:{recorder.port}")
                print(f"{name}: {len(recorder.frames) - before} requests")
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(STOP_TIMEOUT_S)
    return _write(recorder.frames)


def _start(folder: Path, advertised_port: int) -> "subprocess.Popen[str]":
    settings = {
        "advertised.listeners": f"PLAINTEXT://{HOST}:{advertised_port}",
        "group.initial.rebalance.delay.ms": "0",
    }
    command = [str(Path(sys.executable).with_name("kwire")), "serve", "--kafka", f"{HOST}:0", "--http", f"{HOST}:0"]
    command += ["--data-dir", str(folder / "data")]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)


def _port(server: "subprocess.Popen[str]") -> int:
    assert server.stdout is not None
    watch = threading.Timer(READY_TIMEOUT_S, server.kill)
    watch.start()
    try:
        for line in server.stdout:
            if found := re.match(r"ready .*kafka=\S+:(\d+)", line):
                return int(found[1])
    finally:
        watch.cancel()
    raise SystemExit("fuzz: the server did not start")


def _write(frames: list[bytes]) -> int:
    """Write up to FRAMES_PER_CALL different frames of each API and version, including the smallest and the largest."""
    calls: dict[tuple[int, int], set[bytes]] = defaultdict(set)
    for frame in frames:
        if len(frame) <= FRAME_BYTES_MAX and not FOREIGN.search(frame) and call_of(frame)[0] in APIS:
            calls[call_of(frame)].add(frame)
    for path in FOLDER.glob("*.hex"):
        path.unlink()
    FOLDER.mkdir(exist_ok=True)
    size_bytes = 0
    for call, found in sorted(calls.items()):
        ordered = sorted(found, key=len)
        step = max(1, (len(ordered) - 1) // (FRAMES_PER_CALL - 1))
        chosen = ordered if len(ordered) <= FRAMES_PER_CALL else [*ordered[::step][: FRAMES_PER_CALL - 1], ordered[-1]]
        text = "".join(f"{frame.hex()}\n" for frame in chosen)
        (FOLDER / file_name(*call)).write_text(text, encoding="ascii")
        size_bytes += len(text)
    print(f"{len(calls)} APIs and versions, {size_bytes} bytes in scripts/fuzzing/corpus")
    assert size_bytes <= CORPUS_BYTES_MAX
    return 0
