"""Runs a Containerfile without a container engine: each stage in a root of its own, an overlay over this machine's.

The Python of this machine stands for that of the base image. Needs root.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

# Longer than any test; the processes are ended by the test, this is for tests that die.
KEEP_S = 1_800
STEP_TIMEOUT_S = 400.0
END_TIMEOUT_S = 30.0
_MOUNT = """
mount -t overlay overlay -o "lowerdir=/,upperdir=$0/upper,workdir=$0/work" "$0/image" &&
mount -t overlay overlay -o "lowerdir=$2,upperdir=$0/python-upper,workdir=$0/python-work" "$0/image/usr/local" &&
mount -t proc proc "$0/image/proc" && mount --rbind /dev "$0/image/dev" && mount -t tmpfs tmpfs "$0/image/tmp" &&
echo mounted && exec sleep "$1"
"""
_LOOPBACK_ONLY = "ip link set lo up && echo up && exec sleep $0"


@dataclass
class Stage:
    """The instructions of a stage, in order, and what its containers run."""

    base: str
    name: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        return [rest for one, rest in self.instructions if one == word]

    def last(self, word: str) -> str:
        return self.all(word)[-1]


def parse(path: Path) -> list[Stage]:
    """Return the stages of a Containerfile."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    stages: list[Stage] = []
    for instruction in "\n".join(lines).replace("\\\n", " ").splitlines():
        word, _, rest = instruction.strip().partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            stages.append(Stage(base, name))
        elif stages:
            stages[-1].instructions.append((word, rest.strip()))
        elif word != "ARG":
            raise ValueError(f"{word} before FROM")
    return stages


class StageRoot:
    """The root file system of a stage, in which its instructions are run."""

    def __init__(self, folder: Path, context: Path, stages: Mapping[str, "StageRoot"]) -> None:
        self._context = context
        self._stages = stages
        self._folder = folder / "image"
        for name in ("upper", "work", "image", "python-upper", "python-work"):
            (folder / name).mkdir(parents=True)
        self.environment = {"PATH": "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"}
        self._directory = "/"
        self._user = "root"
        # As in the base image, Python is in /usr/local.
        arguments = [str(folder), str(KEEP_S), sys.base_prefix]
        self._keeper = self._kept(["unshare", "--mount", "sh", "-c", _MOUNT, *arguments])
        self._network: subprocess.Popen[bytes] | None = None
        # A Python with a shared library finds it, also if the user may not read the place where it was built.
        self.run(["ldconfig"])

    @property
    def outside(self) -> Path:
        """The root as the test sees it."""
        return Path(f"/proc/{self._keeper.pid}/root{self._folder}")

    def run_instructions(self, stage: Stage) -> None:
        for word, rest in stage.instructions:
            match word:
                case "RUN":
                    self.run(["sh", "-c", rest], environment=self._of_the_builder())
                case "COPY":
                    self._copy(rest)
                case "WORKDIR":
                    self._directory = rest
                    (self.outside / rest.lstrip("/")).mkdir(parents=True, exist_ok=True)
                case "ENV":
                    self.environment |= dict(one.split("=", 1) for one in shlex.split(rest))
                case "USER":
                    self._user = rest
                case "VOLUME" | "EXPOSE" | "HEALTHCHECK" | "STOPSIGNAL" | "CMD":
                    pass
                case _:
                    raise ValueError(f"{word} is not known")

    def command(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> list[str]:
        """The command that runs a program in this root, as a container would."""
        namespaces = [f"--mount=/proc/{self._keeper.pid}/ns/mnt"]
        if self._network is not None:
            namespaces.append(f"--net=/proc/{self._network.pid}/ns/net")
        variables = {**self.environment, **(environment or {})}
        as_user = ["setpriv", f"--reuid={self._user}", f"--regid={self._user}", "--clear-groups", "--no-new-privs"]
        return [
            *("nsenter", *namespaces, "chroot", str(self._folder)),
            *(as_user if self._user != "root" else ()),
            *("env", "-i", f"--chdir={self._directory}", *(f"{name}={value}" for name, value in variables.items())),
            *arguments,
        ]

    def run(self, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
        done = subprocess.run(
            self.command(arguments, environment), capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    def isolate_network(self, hosts: Sequence[str]) -> None:
        """From here on, run programs in a network that has a loopback interface only, which also has these names."""
        with (self.outside / "etc/hosts").open("a") as file:
            file.writelines(f"127.0.0.1 {host}\n" for host in hosts)
        self._network = self._kept(["unshare", "--net", "sh", "-c", _LOOPBACK_ONLY, str(KEEP_S)])

    def close(self) -> None:
        for keeper in (self._network, self._keeper):
            if keeper is not None:
                keeper.kill()
                keeper.wait(END_TIMEOUT_S)

    def _copy(self, rest: str) -> None:
        *sources, target = shlex.split(rest)
        origin = self._context
        if sources[0].startswith("--from="):
            origin = self._stages[sources.pop(0).removeprefix("--from=")].outside
        to = self.outside / self._directory.lstrip("/") / target if not target.startswith("/") else None
        to = to or self.outside / target.lstrip("/")
        for source in (origin / one.lstrip("/") for one in sources):
            if source.is_dir():
                shutil.copytree(source, to, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(source, to / source.name if target.endswith("/") else to)

    @staticmethod
    def _of_the_builder() -> dict[str, str]:
        """What an engine passes to the steps of a build: where packages come from."""
        return {name: value for name, value in os.environ.items() if name.startswith("PIP_")}

    @staticmethod
    def _kept(command: Sequence[str]) -> "subprocess.Popen[bytes]":
        keeper = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert keeper.stdout is not None
        with keeper.stdout as output:
            assert output.readline(), f"{command} failed"
        return keeper


def arguments_of(instruction: str) -> list[str]:
    """The arguments of a CMD or of a HEALTHCHECK in JSON form."""
    found: list[str] = json.loads(instruction[instruction.index("[") :])
    return found
