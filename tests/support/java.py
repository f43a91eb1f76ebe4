"""Apache Kafka's own command-line tools, each run in a short-lived JVM."""

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
FETCH_SCRIPT = REPOSITORY / "compat" / "apache_kafka" / "fetch"
FETCH_TIMEOUT_S = 600.0
TOOL_TIMEOUT_S = 60.0
# A tool lives for a second: the simplest collector and the first compiler start fastest.
JVM_FLAGS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def kafka_libs() -> Path:
    """The folder of Apache Kafka's jars: KWIRE_KAFKA_LIBS if set, else fetched once into the user's cache."""
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
    """Runs a tool by its class name and hands back what it printed."""

    def __init__(self, libs: Path) -> None:
        self.libs = libs

    def command(self, tool: str, *arguments: str) -> list[str]:
        name = tool if tool.startswith(("kafka.", "org.")) else f"org.apache.kafka.tools.{tool}"
        return ["java", *JVM_FLAGS, "-cp", f"{self.libs}/*", name, *arguments]

    def run(self, tool: str, *arguments: str, stdin: str = "", timeout_s: float = TOOL_TIMEOUT_S) -> str:
        """Standard output of a tool that ended well; everything it said is in the error otherwise."""
        done = subprocess.run(
            self.command(tool, *arguments), input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
        assert done.returncode == 0, f"{tool} {arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        return done.stdout
