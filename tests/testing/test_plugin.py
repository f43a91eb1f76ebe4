"""The pytest plugin, as its users use it: in a pytest run of its own, with stock clients."""

import re
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

RUN_TIMEOUT_S = 100.0


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    return pytester


def result_of(run: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return run.runpytest_subprocess(
        "-p", "kwire.pytest_plugin", "-p", "no:cacheprovider", *arguments, timeout=RUN_TIMEOUT_S
    )


def test_tests_with_stock_clients_use_the_fixtures(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\nkwire_settings =\n    num.partitions=4\n")
    run.makepyfile(
        """
        import time
        import pytest
        from confluent_kafka import Consumer, Producer
        from kafka import KafkaConsumer, KafkaProducer
        from kafka.errors import TopicAuthorizationFailedError

        pids = set()

        def test_produce_and_consume_with_kafka_python(kwire_server):
            print(f"started in {kwire_server.start_seconds:.2f} s")
            assert kwire_server.data_dir.is_dir()
            assert kwire_server.http_url.startswith("http://127.0.0.1:")
            pids.add(kwire_server.pid)
            producer = KafkaProducer(bootstrap_servers=kwire_server.bootstrap_server)
            producer.send("orders", b"1").get(30)
            producer.close()
            assert len(kwire_server.end_offsets("orders")) == 4
            consumer = KafkaConsumer(
                "orders", bootstrap_servers=kwire_server.bootstrap_server, auto_offset_reset="earliest"
            )
            assert next(consumer).value == b"1"
            consumer.close()

        @pytest.mark.kwire({"log.retention.ms": "5000"}, num_partitions=2)
        def test_settings_of_a_test(kwire_server):
            pids.add(kwire_server.pid)
            producer = Producer({"bootstrap.servers": kwire_server.bootstrap_server})
            producer.produce("orders", b"2")
            assert producer.flush(30) == 0
            # Nothing of the other test's server is here.
            assert sum(kwire_server.end_offsets("orders")) == 1
            assert len(kwire_server.end_offsets("orders")) == 2
            assert len(pids) == 2

        @pytest.mark.parametrize("number", range(3))
        def test_a_shared_server_is_one_server_without_the_faults_of_other_tests(kwire_shared_server, number):
            pids.add(kwire_shared_server.pid)
            producer = KafkaProducer(bootstrap_servers=kwire_shared_server.bootstrap_server)
            producer.send("shared", b"3").get(30)
            assert sum(kwire_shared_server.end_offsets("shared")) == number + 1
            kwire_shared_server.faults.error("Produce", "TOPIC_AUTHORIZATION_FAILED", times=None)
            with pytest.raises(TopicAuthorizationFailedError):
                producer.send("shared", b"4").get(30)
            producer.close()
            if number == 1:
                kwire_shared_server.kill()
            assert len(pids) == (3 if number < 2 else 4)

        def test_several_servers(start_kwire):
            one, other = start_kwire(), start_kwire({"num.partitions": "1"})
            assert one.bootstrap_server != other.bootstrap_server
        """
    )
    result = result_of(run, "-s", "--strict-markers")
    result.assert_outcomes(passed=6)
    (seconds,) = re.findall(r"started in ([\d.]+) s", result.stdout.str())
    print(f"the fixture kwire_server took {seconds} s")
    # No process is left over.
    assert not server_processes_in(run.path.name)


def server_processes_in(name: str) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, timeout=30, check=True).stdout
    return [line for line in listed.splitlines() if "kwire.testing.serve" in line and name in line]


def test_a_failed_test_shows_the_log_of_its_server(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        def test_it(kwire_server):
            kwire_server.log_path.open("a").write("the last words\\n")
            assert False
        """
    )
    result = result_of(run)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*log of the kwire server 127.0.0.1:*", "*the last words*"])


def test_the_plugin_costs_nothing_until_it_is_used(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import sys

        def test_it(pytestconfig):
            assert pytestconfig.pluginmanager.hasplugin("kwire.pytest_plugin")
            assert pytestconfig.pluginmanager.get_plugin("kwire-log-reporter") is None
            loaded = {name for name in sys.modules if name.partition(".")[0] in ("kwire", "storage")}
            assert loaded == {"kwire", "kwire.pytest_plugin"}
        """
    )
    result_of(run).assert_outcomes(passed=1)


def test_the_plugin_is_installed_under_its_name() -> None:
    program = "import importlib.metadata as m; print([e.value for e in m.entry_points(group='pytest11', name='kwire')])"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert said.stdout.strip() == "['kwire.pytest_plugin']"
