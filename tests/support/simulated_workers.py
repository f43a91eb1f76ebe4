"""Runs of pytest-xdist's own controller with simulated workers, whose events arrive in a random order.

A simulated worker behaves like a real one: it starts a test only if it knows the next one or that there is none, and
when it crashes, the pipe to it breaks before the controller is notified.
"""

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from xdist.dsession import DSession
from xdist.workermanage import parse_tx_spec_config

_SHUTDOWN = -1


class SimulatedRun:
    """One run of a list of tests: the node manager and the event queue of xdist's controller."""

    def __init__(self, config: pytest.Config, random: Random, tests: list[str], kill_chance: float) -> None:
        """Tests whose names end with `crash` crash; with `kill_chance`, a worker is killed before a step of the run."""
        self.tests = tests
        self.started: list[str] = []
        self.passed: list[str] = []
        # Tests that were running when their worker ended, and tests that the controller reports as crashed.
        self.interrupted: list[str] = []
        self.crashed: list[str] = []
        # The controller asks the group to name each new worker.
        self.group = SimpleNamespace(allocate_id=lambda spec: None)
        self._config = config
        self._random = random
        self._kill_chance = kill_chance
        self._workers: list[SimulatedWorker] = []
        self._events: deque[Any] = deque()
        self._controller = DSession(config)
        self._controller.nodemanager = self._controller.queue = self
        self._controller._session = SimpleNamespace()
        self._controller._active_nodes.update(self.setup_node(spec, self.put) for spec in parse_tx_spec_config(config))

    def play(self) -> None:
        """Run all tests; raises AssertionError if the controller waits for an event that cannot come."""
        self._config.pluginmanager.register(self)
        try:
            self._controller.pytest_runtestloop()
        finally:
            self._config.pluginmanager.unregister(self)

    def pytest_handlecrashitem(self, crashitem: str) -> None:
        self.crashed.append(crashitem)

    def setup_node(self, spec: Any, putevent: Callable[[Any], None]) -> "SimulatedWorker":
        self._workers.append(SimulatedWorker(self, f"gw{len(self._workers)}"))
        return self._workers[-1]

    def put(self, event: Any) -> None:
        self._events.append(event)

    def get(self, timeout: float) -> Any:
        """Return the next event for the controller, after a random number of steps of the workers."""
        while True:
            alive = [worker for worker in self._workers if not worker.has_ended]
            if alive and self._random.random() < self._kill_chance:
                self._random.choice(alive).end()
            steps = [step for worker in self._workers for step in worker.possible_steps()]
            assert steps or self._events, "the controller and all workers wait"
            chosen = self._random.randrange(len(steps) + bool(self._events))
            if chosen == len(steps):
                return self._events.popleft()
            steps[chosen]()


class SimulatedWorker:
    """A worker process together with xdist's WorkerController, which stands for it in the controller."""

    def __init__(self, run: SimulatedRun, name: str) -> None:
        self.gateway = SimpleNamespace(id=name, spec=SimpleNamespace())
        self.workeroutput = {"exitstatus": 0, "shouldfail": False, "shouldstop": False}
        self.shutting_down = False
        self.has_ended = False
        self._run = run
        self._process = self._work()
        self._commands: deque[int] = deque()
        self._needs_command = False
        self._running: str | None = None
        # Events that the controller has not read yet, and whether it has read the last one.
        self._pipe: deque[tuple[str, dict[str, Any]]] = deque()
        self._is_down = False

    def send_runtest_some(self, indices: list[int]) -> None:
        if self.has_ended:
            raise OSError("cannot send (already closed?)")
        self._commands += indices

    def shutdown(self) -> None:
        self._commands.append(_SHUTDOWN)
        self.shutting_down = True

    def possible_steps(self) -> list[Callable[[], None]]:
        steps = []
        if not self.has_ended and (self._commands or not self._needs_command):
            steps.append(self._go_on)
        if self._pipe or (self.has_ended and not self._is_down):
            steps.append(self._read_event)
        return steps

    def end(self) -> None:
        self.has_ended = True
        if self._running is not None:
            self._run.interrupted.append(self._running)

    def _go_on(self) -> None:
        self._needs_command = next(self._process)

    def _work(self) -> Iterator[bool]:
        """The worker process; yields after each step whether the next one needs a command."""
        self._send("workerready", workerinfo={})
        yield False
        self._send("collectionfinish", ids=list(self._run.tests))
        yield True
        test = self._commands.popleft()
        while test != _SHUTDOWN:
            yield True
            following = self._commands.popleft()
            self._running = self._run.tests[test]
            self._run.started.append(self._running)
            yield False
            if self._running.endswith("crash"):
                self.end()
                yield False
            self._run.passed.append(self._running)
            self._running = None
            self._send("runtest_protocol_complete", item_index=test, duration=0.0)
            test = following
        yield False
        self._send("workerfinished")
        self.has_ended = True
        yield False

    def _send(self, event: str, **values: Any) -> None:
        self._pipe.append((event, {"node": self, **values}))

    def _read_event(self) -> None:
        """Move one event to the controller's queue, which xdist does in a thread for each worker."""
        event = self._pipe.popleft() if self._pipe else ("errordown", {"node": self, "error": "crashed"})
        self._run.put(event)
        if event[0] in ("workerfinished", "errordown"):
            self._is_down = self.shutting_down = True
