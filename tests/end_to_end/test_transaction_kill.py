"""SIGKILL of the server while transactions are under way: they are there whole or not at all, once, and none hangs."""

import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.end_to_end.seeds import announced_seed
from tests.support.clients import Topics
from tests.support.effort import repetitions
from tests.support.history import Begun, EndAsked, Ended, FinalLog, History, Isolation, Outcome, Place, Read
from tests.support.history_anomalies import report
from tests.support.history_checks import anomalies_in
from tests.support.server import KwireProcess, wait_until
from tests.support.transactional_ends import Ends, note_final_logs, note_final_positions
from tests.support.transactional_errors import MARK, unexplained
from tests.support.transactional_producer import DEATHS, RETURNS, Tally
from tests.support.transactional_workers import Reader, SecondGenerationWriter, Sleeper, Transformer, Worker, Writer

KILLS = repetitions(quick=5, full=20)
COMMITS_BETWEEN_KILLS_MAX = 25
KILL_DELAY_S_MAX = 0.1
PROGRESS_TIMEOUT_S = 60.0
END_TIMEOUT_S = 90.0
RESTART_BOUND_S = 20.0
# After this the server alone ends a transaction that nobody owns any more.
SLEEP_TIMEOUT_S = 5.0
SETTLE_TIMEOUT_S = 60.0
ROOT = Path(__file__).resolve().parents[2]


class AiokafkaProgram:
    """A process of its own, which writes to the same history; see tests/support/transactional_aiokafka.py."""

    def __init__(
        self,
        bootstrap: str,
        history: Path,
        name: str,
        seed: int,
        places: Sequence[Place],
        inputs: Sequence[Place] = (),
    ) -> None:
        self.name = name
        self.errors = history.with_name(f"{name}.err")
        lists = [",".join(f"{place.topic}:{place.partition}" for place in some) for some in (places, inputs) if some]
        with self.errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.support.transactional_aiokafka"),
                    *(bootstrap, str(history), name, str(seed), *lists),
                ],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def join(self, timeout_s: float) -> str:
        """What it has counted."""
        assert self._process.stdout is not None
        try:
            code = self._process.wait(timeout_s)
            assert code == 0, f"{self.name} ended with {code}\n{self.errors.read_text()[-4000:]}"
            return self._process.stdout.read().decode()
        finally:
            self.kill()

    def kill(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(END_TIMEOUT_S)
        self._process.stdin.close()
        self._process.stdout.close()


class Run:
    """All workers of one run, the history they write, and the server they trouble."""

    def __init__(self, process: KwireProcess, directory: Path, chance: random.Random) -> None:
        self.process = process
        self.chance = chance
        self.path = directory / "history.jsonl"
        self.history = History(self.path)
        self.tally = Tally()
        self.restarts_s: list[float] = []
        topics = Topics(process.bootstrap)
        # Small segments, so that some kills meet a roll, and transactions lie across several.
        configs = {"segment.bytes": str(1 << 20)}
        self.inputs = self.create(topics, "inputs", 2, configs)
        self.data = self.create(topics, "data", 3, configs)
        self.slept = self.create(topics, "slept", 1, configs)
        self.outputs = self.create(topics, "outputs", 2, configs)
        topics.close()
        self.places = (*self.inputs, *self.data, *self.slept, *self.outputs)
        self.writers: list[Worker] = []
        self.readers: list[Reader] = []
        self.programs: list[AiokafkaProgram] = []
        self.told_programs: list[str] = []

    def create(self, topics: Topics, stem: str, partitions: int, configs: dict[str, str]) -> list[Place]:
        name = topics.create(stem, partitions=partitions, configs=configs)
        return [Place(name, partition) for partition in range(partitions)]

    def start(self) -> None:
        common = (self.process.bootstrap, self.history, self.tally)
        everywhere = (*self.inputs, *self.data)
        for index, places in enumerate((everywhere, everywhere, (*self.data, *self.slept))):
            self.writers.append(Writer(*common, f"writer-{index}", self.seed(), places))
        self.writers.append(SecondGenerationWriter(*common, "second-generation", self.seed(), everywhere))
        self.writers.append(Transformer(*common, "transformer", self.seed(), self.inputs, self.outputs))
        self.writers.append(Sleeper(*common, "sleeper", self.seed(), self.slept[0], SLEEP_TIMEOUT_S))
        self.readers += [
            Reader(*common, f"reader-{index}", self.seed(), self.places, reconnects=index > 0) for index in range(3)
        ]
        for worker in (*self.readers, *self.writers):
            worker.start()
        aiokafka = (self.process.bootstrap, self.path)
        self.programs.append(AiokafkaProgram(*aiokafka, "aiokafka-writer", self.seed(), everywhere))
        self.programs.append(AiokafkaProgram(*aiokafka, "aiokafka-maker", self.seed(), self.outputs, self.inputs))

    def seed(self) -> int:
        return self.chance.getrandbits(32)

    def has_committed(self, count: int) -> bool:
        failures = [worker.failure for worker in (*self.writers, *self.readers) if worker.failure]
        assert failures == [], "\n".join(failures)
        gone = [program.errors.read_text()[-4000:] for program in self.programs if not program.is_running]
        assert gone == [], "\n".join(gone)
        return self.tally[Outcome.COMMITTED] >= count

    def wait_for_commits(self, count: int) -> None:
        target = self.tally[Outcome.COMMITTED] + count
        wait_until(partial(self.has_committed, target), "transactions are committed", PROGRESS_TIMEOUT_S)

    def kill(self) -> None:
        # Some way into the new life of the server, then at any moment.
        self.wait_for_commits(self.chance.randint(1, COMMITS_BETWEEN_KILLS_MAX))
        threading.Event().wait(self.chance.uniform(0.0, KILL_DELAY_S_MAX))
        assert self.process.is_running, "the server ended by itself"
        self.process.kill()
        # Noted before it is back: whoever meets the next life of it knows.
        self.tally.add(DEATHS)
        self.restarts_s.append(self.process.restart())
        self.tally.add(RETURNS)

    def finish(self) -> None:
        """Everybody ends what they do; then what is left is the server's to end."""
        for worker in self.writers:
            worker.stop()
        for program in self.programs:
            program.stop()
        for worker in self.writers:
            worker.join(END_TIMEOUT_S)
        for program in self.programs:
            lines = program.join(END_TIMEOUT_S).splitlines()
            print(f"{program.name}: {', '.join(lines)}")
            self.told_programs += [line.split(" ", 1)[1] for line in lines]
        ends = Ends(self.process.bootstrap, self.places)
        ends.wait_until_settled(SETTLE_TIMEOUT_S)
        ends.wait_until_read(self.readers, END_TIMEOUT_S)
        for reader in self.readers:
            reader.stop()
        for reader in self.readers:
            reader.join(END_TIMEOUT_S)
        note_final_logs(self.process.bootstrap, self.history, self.places)
        for group in ("transformer", "aiokafka-maker"):
            note_final_positions(self.process.bootstrap, self.history, group, self.inputs)

    def close(self) -> None:
        for worker in (*self.writers, *self.readers):
            worker.stop()
        for program in self.programs:
            program.kill()
        self.history.close()


def tell(run: Run, events: Sequence[object]) -> Counter[str]:
    """What has happened, and that it was enough to prove something."""
    counts: Counter[str] = Counter(transactions=0)
    for event in events:
        match event:
            case Begun():
                counts["transactions"] += 1
            case EndAsked(is_commit=False):
                counts["aborts asked"] += 1
            case Ended():
                counts[str(event.outcome)] += 1
                if event.transaction.startswith("aiokafka"):
                    counts[f"{event.outcome} by aiokafka"] += 1
                if event.transaction.startswith("second-generation"):
                    counts[f"{event.outcome} by the second generation"] += 1
                if event.transaction.startswith(("transformer", "aiokafka-maker")):
                    counts[f"{event.outcome} with positions"] += 1
            case Read():
                counts["reads"] += 1
            case FinalLog():
                counts["records" if event.isolation is Isolation.COMMITTED else "records appended"] += len(
                    event.records
                )
    counts["left to time out"] = run.tally["left to time out"]
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())))
    print(
        f"{len(run.restarts_s)} kills, restart to ready: most {max(run.restarts_s):.3f} s; {run.tally.with_prefix('')}"
    )
    return counts


@pytest.mark.timeout(240 + 15 * KILLS)
def test_transactions_are_whole_and_once_under_kills(start_kwire: Callable[..., KwireProcess], tmp_path: Path) -> None:
    run = Run(start_kwire(), tmp_path, random.Random(announced_seed()))
    try:
        run.start()
        for _ in range(KILLS):
            run.kill()
        run.wait_for_commits(20)
        run.finish()
    finally:
        run.close()
    events = History.load(run.path).events
    counts = tell(run, events)
    anomalies = anomalies_in(events)
    assert anomalies == [], f"{report(anomalies)}\nthe history is in {run.path}"
    assert unexplained([*run.tally.with_prefix(MARK), *run.told_programs]) == []
    assert max(run.restarts_s) < RESTART_BOUND_S
    assert counts["committed"] > 10 * KILLS
    assert counts["aborted"] > KILLS
    assert counts["fenced"] > 0
    assert counts["unknown"] > 0
    assert counts["left to time out"] > 0
    assert counts["committed by aiokafka"] > KILLS
    assert counts["committed by the second generation"] > KILLS
    assert counts["committed with positions"] > KILLS
