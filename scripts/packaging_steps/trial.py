"""Tries the wheel in an empty environment, as somebody who has only the wheel would use it."""

import re
import shutil
import subprocess
import time
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs")
STEP_TIMEOUT_S = 600.0
READY_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 30.0


def check_content(wheel: Path) -> None:
    """Check what an installation would not show."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    (metadata,) = {name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA")}
    wanted = {
        "kwire/py.typed",
        "storage/py.typed",
        "kwire/web/pages/console/docs/index.html",
        f"{metadata}/licenses/LICENSE",
    }
    missing = wanted - names
    foreign = {name for name in names if name.partition("/")[0] not in ("kwire", "storage", metadata)}
    if missing or foreign:
        raise SystemExit(f"{wheel.name}: missing {sorted(missing)}, must not contain {sorted(foreign)}")


class EmptyEnvironment:
    """A virtual environment in a folder, with the wheel and nothing else."""

    def __init__(self, folder: Path, python: str | None) -> None:
        self._folder = folder
        # Beside the environment, where neither the sources nor the settings of this repository are found.
        self.programs = shutil.copytree(PROGRAMS, folder / "programs", ignore=shutil.ignore_patterns("__pycache__"))
        self._bin = folder / "environment" / "bin"
        if python is None:
            venv.create(folder / "environment", with_pip=True, symlinks=True)
        else:
            self._run([python, "-m", "venv", str(folder / "environment")])
        print(f"  {self.python('--version').strip()}", flush=True)

    def python(self, *arguments: str) -> str:
        return self._run([str(self._bin / "python"), "-P", *arguments])

    def install(self, *requirements: str) -> None:
        self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)

    def kwire(self, *arguments: str) -> str:
        return self._run([str(self._bin / "kwire"), *arguments])

    def _run(self, command: Sequence[str]) -> str:
        done = subprocess.run(
            command, cwd=self._folder, capture_output=True, text=True, timeout=STEP_TIMEOUT_S, check=False
        )
        if done.returncode:
            raise SystemExit(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
        return done.stdout

    def serve_and_use(self) -> None:
        """Run a server, and let a program produce, consume, publish and subscribe."""
        command = [str(self._bin / "kwire"), "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        with subprocess.Popen(
            [*command, "--data-dir", str(self._folder / "data")],
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            assert server.stdout is not None
            try:
                line = next((one for one in server.stdout if one.startswith("ready ")), "")
                addresses = dict(re.findall(r"(kafka|http)=(\S+)", line))
                if len(addresses) != 2:
                    raise SystemExit("the server did not start")
                self.kwire("topic", "create", "numbers", "--bootstrap-server", addresses["kafka"])
                self.kwire("example", "chat", "--http", f"http://{addresses['http']}")
                self.python(str(self.programs / "use_server.py"), addresses["kafka"], f"http://{addresses['http']}")
            finally:
                server.terminate()
            if server.wait(STOP_TIMEOUT_S):
                raise SystemExit(f"the server ended with exit code {server.returncode}")


def try_wheel(wheel: Path, folder: Path, *, python: str | None = None, lowest: Sequence[str] = ()) -> None:
    """Install the wheel and use it. `lowest` are versions of dependencies that are installed instead of the newest."""

    def step(name: str, began: float) -> None:
        print(f"  {name}: {time.monotonic() - began:.1f} s", flush=True)

    began = time.monotonic()
    environment = EmptyEnvironment(folder, python)
    environment.install(f"{wheel}[test]", *lowest)
    environment.python("-m", "pip", "check")
    step("installed, pip check", began)
    began = time.monotonic()
    environment.kwire("--help")
    environment.python(str(environment.programs / "import_all.py"))
    step("every module imported", began)
    began = time.monotonic()
    environment.serve_and_use()
    step("served, produced, consumed, published, subscribed", began)
    began = time.monotonic()
    test, program = environment.programs / "test_with_fixture.py", environment.programs / "use_server.py"
    environment.python("-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))
    step("pytest with the fixture kwire_server", began)
    if not lowest:
        began = time.monotonic()
        environment.install("mypy")
        environment.python("-m", "mypy", "--strict", str(program), str(test))
        step("mypy --strict", began)
