"""The pytest plugins of tests/support, each in a pytest run of its own over a few small tests."""

from pathlib import Path
from random import Random

import pytest

from tests.support import distribution, durations, effort, needs
from tests.support.simulated_workers import SimulatedRun

pytest_plugins = ["pytester"]

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = [
    f"-p{plugin}" for plugin in ("xdist", "pytest_timeout", needs.__name__, distribution.__name__, durations.__name__)
]
WORKERS = pytest.mark.parametrize(
    "workers", [(), ("-n", "2", "--dist", "loadgroup")], ids=["in this process", "in two workers"]
)
INI = """
[pytest]
timeout = 60
markers =
    full(reason): of the higher efforts
    needs_kcat: needs kcat
"""
RUN_TIMEOUT_S = 60.0
CRASHING = "import os\n\ndef test_before(): pass\n\ndef test_crash(): os._exit(3)\n\ndef test_after(): pass\n"
SIMULATED_RUNS = effort.repetitions(quick=300, full=3000)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder for test files, and a pytest with the plugins."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # What other plugins do is not under test, and loading them takes longer than everything else.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.delenv(effort.VARIABLE, raising=False)
    pytester.makeini(INI)
    return pytester


def result_of(run: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return run.runpytest_subprocess(*PLUGINS, *arguments, timeout=RUN_TIMEOUT_S)


@WORKERS
def test_every_test_that_is_left_out_is_named_with_the_reason(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    run.makepyfile(
        test_left_out="""
        import shutil
        import pytest

        shutil.which = lambda program: None

        @pytest.mark.needs_kcat
        def test_of_kcat(): raise AssertionError

        @pytest.mark.full("it takes an hour")
        def test_of_an_hour(): raise AssertionError

        def test_of_now(): pass
        """
    )
    result = result_of(run, *workers)
    assert result.ret == 0
    result.assert_outcomes(passed=1, deselected=0 if workers else 2)
    result.stdout.fnmatch_lines(
        [
            "*not run: KWIRE_TEST_EFFORT is quick (it takes an hour)*",
            "test_left_out.py::test_of_an_hour",
            "*not run: kcat is missing*",
            "test_left_out.py::test_of_kcat",
            "*1 passed*",
        ]
    )


@pytest.mark.parametrize("name", ["full", "soak"])
def test_higher_efforts_run_what_is_marked_full(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(effort.VARIABLE, name)
    run.makepyfile("import pytest\n\n@pytest.mark.full('slow')\ndef test_it(): pass")
    result_of(run).assert_outcomes(passed=1)


@pytest.mark.parametrize(("name", "limits"), [("full", [60, 7]), ("soak", [600, 70])])
def test_time_limits_rise_with_the_repetitions(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, name: str, limits: list[int]
) -> None:
    monkeypatch.setenv(effort.VARIABLE, name)
    run.makepyfile(
        f"""
        import pytest

        def limit(item):
            mark = item.get_closest_marker("timeout")
            return mark.args[0] if mark else float(item.config.getini("timeout"))

        def test_default(request): assert limit(request.node) == {limits[0]}

        @pytest.mark.timeout(7)
        def test_marked(request): assert limit(request.node) == {limits[1]}
        """
    )
    result_of(run).assert_outcomes(passed=2)


def test_unknown_effort_is_refused(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(effort.VARIABLE, "lazy")
    run.makepyfile("def test_it(): pass")
    result = result_of(run)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*KWIRE_TEST_EFFORT must be one of quick, full, soak, got 'lazy'*"])


@pytest.mark.parametrize(("name", "count", "drawn"), [("quick", 5, 25), ("full", 20, 100), ("soak", 200, 1000)])
def test_effort_decides_how_often_random_tests_repeat(
    monkeypatch: pytest.MonkeyPatch, name: str, count: int, drawn: int
) -> None:
    monkeypatch.setenv(effort.VARIABLE, name)
    assert effort.repetitions(quick=5, full=20) == count
    assert effort.examples(100) == drawn


def test_few_examples_stay_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(effort.VARIABLE, "quick")
    assert [effort.examples(full) for full in (3, 10, 30, 60)] == [3, 10, 10, 15]


def test_a_file_and_a_group_each_stay_in_one_worker(run: pytest.Pytester) -> None:
    one = "import os, pytest\n\n@pytest.mark.parametrize('number', range(12))\ndef test_it(number): "
    write = "open('workers', 'a').write(f'{} {{os.getpid()}}\\n')"
    group = "import pytest\npytestmark = pytest.mark.xdist_group('one jvm')\n"
    run.makepyfile(
        test_a=one + write.format("a"),
        test_b=one + write.format("b"),
        test_c=group + one + write.format("group"),
        test_d=group + one + write.format("group"),
    )
    result_of(run, "-n", "2", "--dist", "loadgroup").assert_outcomes(passed=48)
    seen = {tuple(line.split()) for line in (run.path / "workers").read_text().splitlines()}
    assert sorted(unit for unit, _ in seen) == ["a", "b", "group"]
    assert len({process for _, process in seen}) == 2


@pytest.mark.parametrize("crashing", [1, 3])
def test_run_ends_and_names_the_test_when_a_worker_crashes(run: pytest.Pytester, crashing: int) -> None:
    passing = "import pytest\n\n@pytest.mark.parametrize('number', range(6))\ndef test_it(number): pass\n"
    files = {f"test_passing_{number}": passing for number in range(4)}
    for number in range(crashing):
        files[f"test_crash_{number}"] = CRASHING
    run.makepyfile(**files)
    result = result_of(run, "-n", "2", "--dist", "loadgroup")
    result.assert_outcomes(passed=24 + 2 * crashing, failed=crashing)
    for number in range(crashing):
        result.stdout.fnmatch_lines([f"*crashed while running 'test_crash_{number}.py::test_crash'*"])


def test_worker_that_has_crashed_before_it_is_sent_work_is_replaced(run: pytest.Pytester) -> None:
    """The pipe to the worker breaks before xdist reports the crash."""
    run.makeconftest(
        """
        def pytest_configure_node(node):
            send, sent = node.send_runtest_some, []

            def send_after_the_crash(indices):
                # Both first workers begin with a file that crashes, and get more when its first test has passed.
                if sent and node.gateway.id in ("gw0", "gw1"):
                    node.gateway._io.popen.wait()
                sent.append(indices)
                send(indices)

            node.send_runtest_some = send_after_the_crash
        """
    )
    run.makepyfile(test_a=CRASHING, test_b=CRASHING, test_c="def test_it(): pass", test_d="def test_it(): pass")
    result = result_of(run, "-n", "2", "--dist", "loadgroup")
    result.assert_outcomes(passed=6, failed=2)
    for name in ("a", "b"):
        result.stdout.fnmatch_lines([f"*crashed while running 'test_{name}.py::test_crash'*"])


@pytest.mark.parametrize("kill_chance", [0.0, 0.02])
def test_every_test_ends_once_whenever_workers_crash(run: pytest.Pytester, kill_chance: float) -> None:
    config = run.parseconfig("-pxdist", f"-p{distribution.__name__}", "--tx=2*popen", "--dist=loadgroup")
    for seed in range(SIMULATED_RUNS):
        check_simulated_run(config, seed, kill_chance)


def check_simulated_run(config: pytest.Config, seed: int, kill_chance: float) -> None:
    random = Random(seed)
    tests = [
        f"test_{file}.py::test_{number}_{random.choice(['pass', 'pass', 'crash'])}"
        for file in range(random.randint(1, 6))
        for number in range(random.randint(1, 5))
    ]
    simulated = SimulatedRun(config, random, tests, kill_chance)
    simulated.play()
    assert sorted(simulated.passed + simulated.crashed) == sorted(tests)
    assert len(simulated.started) == len(set(simulated.started))
    assert set(simulated.crashed) & set(simulated.started) == set(simulated.interrupted)
    # Only a worker that is killed between two tests is reported with one that has not started.
    assert kill_chance > 0.0 or set(simulated.crashed) <= set(simulated.started)


def test_folders_of_long_tests_begin_first(run: pytest.Pytester) -> None:
    for folder in ("broker", "end_to_end", "pipeline", "wire"):
        run.mkdir(folder).joinpath(f"test_{folder}.py").write_text("def test_it(): pass")
    result = result_of(run, "--verbose")
    ran = [line.split("/")[0] for line in result.outlines if "::test_it" in line and "PASSED" in line]
    assert ran == ["pipeline", "end_to_end", "broker", "wire"]


@WORKERS
def test_slowest_tests_are_printed_and_all_are_kept_on_request(run: pytest.Pytester, workers: tuple[str, ...]) -> None:
    run.makepyfile(
        """
        import time, pytest

        @pytest.fixture
        def slow(): time.sleep(0.2)

        def test_slow(slow): pass

        @pytest.mark.parametrize("number", range(60))
        def test_quick(number): pass
        """
    )
    result = result_of(run, *workers, "--durations-report")
    shown = [line for line in result.outlines if "s test_" in line and "::" in line]
    assert len(shown) == durations.SHOWN_MAX
    assert shown[0].endswith("::test_slow")
    kept = (run.path / durations.REPORT).read_text().splitlines()
    assert len(kept) == 61
    seconds, test = kept[0].split("\t")
    assert float(seconds) >= 0.2
    assert test.endswith("::test_slow")
    (run.path / durations.REPORT).unlink()
    result_of(run, *workers)
    assert not (run.path / durations.REPORT).exists()
