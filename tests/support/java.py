"""Apache Kafka's own command-line tools: all calls in one JVM, or a call in a JVM of its own as a user starts it."""

import os
import subprocess
from pathlib import Path

from tests.support.tool_server import CALL_TIMEOUT_S, ToolServer, class_name

REPOSITORY = Path(__file__).resolve().parents[2]
FETCH_SCRIPT = REPOSITORY / "compat" / "apache_kafka" / "fetch"
FETCH_TIMEOUT_S = 600.0
# A tool lives for a second: the simplest collector and the first compiler start fastest.
JVM_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def kafka_libs() -> Path:
    """The directory of Apache Kafka's jars: KWIRE_KAFKA_LIBS if set, else fetched once into the user's cache."""
    override = os.environ.get("KWIRE_KAFKA_LIBS")
    if override:
        return Path(override)
    done = subprocess.run(
        ["bash", str(FETCH_SCRIPT)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{FETCH_SCRIPT} failed:\n{done.stdout}\n{done.stderr}"
    return Path(done.stdout.strip().splitlines()[-1])


class JavaTools:
    """Runs tools by their class names in the JVM of a tool server."""

    def __init__(self, server: ToolServer) -> None:
        self.server = server

    def run(self, tool: str, *arguments: str, stdin: str = "", timeout_s: float = CALL_TIMEOUT_S) -> str:
        """Standard output of a tool that succeeded; a failed one raises an error with everything it wrote."""
        answer = self.server.call(tool, *arguments, stdin=stdin, timeout_s=timeout_s)
        assert answer.exit_code == 0, f"{tool} {arguments} ended with {answer}"
        return answer.stdout

    def refused(self, tool: str, *arguments: str) -> str:
        """Everything that a tool wrote which ended with a failure."""
        answer = self.server.call(tool, *arguments)
        assert answer.exit_code == 1, f"{tool} {arguments} ended with {answer}"
        return answer.stdout + answer.stderr

    @staticmethod
    def run_alone(tool: str, *arguments: str, stdin: str = "") -> str:
        """As `run`, in a JVM of its own."""
        command = ["java", *JVM_FLAGS, "-cp", f"{kafka_libs()}/*", class_name(tool), *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=CALL_TIMEOUT_S, check=False)
        assert done.returncode == 0, f"{tool} {arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout
