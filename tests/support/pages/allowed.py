"""The command blocks that are not run, by page and beginning, each with its reason."""

_BENCH = "takes minutes; tests/end_to_end/test_bench_*.py run the families with small counts"
_SPARK = "needs Java, and half a minute for each job; tests/pipeline runs every job"
_SYSTEM = "changes the machine: users, services, folders outside the repository"
_CONTAINER = "needs a container runtime; tests/end_to_end/test_container.py checks the files"
_JAVA_TOOLS = "starts a Java process for each command; tests/end_to_end/test_*_tools.py run Kafka's tools"
_DAMAGE = "needs a damaged data directory; tests/end_to_end/test_catalogue_loss.py and test_cli_log.py make such"

# Each is the beginning of a block, or of several with the same reason.
ALLOWED: dict[tuple[str, str], str] = {
    ("docs/administration.md", "kafka-transactions.sh"): _JAVA_TOOLS,
    ("docs/backup.md", "kwire backup restore /backups/monday /var/lib/kwire --secrets-key"): (
        "needs the key of a server that is lost; tests/end_to_end/test_backup.py restores with one"
    ),
    ("docs/benchmarks.md", "scripts/bench   "): _BENCH,
    ("docs/benchmarks.md", "scripts/bench log"): _BENCH,
    ("docs/benchmarks.md", "scripts/bench groups"): _BENCH,
    ("docs/benchmarks.md", "scripts/bench rooms"): _BENCH,
    ("docs/benchmarks.md", "scripts/bench events"): _BENCH,
    ("docs/benchmarks.md", "scripts/bench pipeline"): _BENCH,
    ("docs/benchmarks.md", "scripts/bench access"): _BENCH,
    ("docs/benchmarks.md", "scripts/bench cli"): _BENCH,
    ("docs/benchmarks.md", "scripts/bench abuse"): _BENCH,
    ("docs/benchmarks.md", "scripts/bench bridge"): _BENCH,
    ("docs/benchmarks.md", "libs=$(compat/apache_kafka/fetch)"): (
        "starts an Apache Kafka; tests/end_to_end/test_quotas_beside_kafka.py does"
    ),
    ("docs/command-line.md", "kwire txn abort"): (
        "needs transactions that hang; tests/end_to_end/test_cli_admin.py makes them"
    ),
    ("docs/command-line.md", "kwire completion fish"): "for another shell than that of the test",
    ("docs/fuzzing.md", "scripts/fuzz"): "takes up to an hour; the tests of tests/wire run cases in small numbers",
    ("docs/install.md", "python3 -m venv /opt/kwire"): _SYSTEM,
    ("docs/install.md", "useradd"): _SYSTEM,
    ("docs/install.md", "docker build"): _CONTAINER,
    ("docs/install.md", "docker compose"): _CONTAINER,
    ("docs/kafka-over-http.md", "$ curl"): (
        "needs topics and groups of its own; tests/web/kafka_requests/test_documentation.py runs these examples"
    ),
    ("docs/monitoring/README.md", "prometheus --config.file"): (
        "listens on a fixed port; tests/end_to_end/test_monitoring.py runs Prometheus on another one"
    ),
    ("docs/pipeline.md", "kwire pipeline "): _SPARK,
    ("docs/pipeline.md", "scripts/install spark"): _SPARK,
    ("docs/pipeline.md", ".venv/bin/python read_table.py"): _SPARK,
    ("docs/pipeline.md", "$ scripts/cluster start"): _SPARK,
    ("docs/quotas.md", "kafka-configs"): _JAVA_TOOLS,
    ("docs/tenants.md", "kafka-topics"): _JAVA_TOOLS,
    ("docs/testing.md", "pip install"): "needs the wheel; scripts/package builds, installs and tries it",
    ("docs/troubleshooting.md", "kwire log adopt /data"): _DAMAGE,
    ("docs/troubleshooting.md", "$ kwire log verify"): _DAMAGE,
}
