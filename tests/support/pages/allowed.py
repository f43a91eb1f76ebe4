"""The command blocks that are not run, by page and first line, each with its reason."""

_BENCH = "takes minutes to hours; tests/end_to_end/test_bench_*.py run them with small counts"
_SPARK = "needs Java, and half a minute for each job; tests/pipeline runs every job"
_SYSTEM = "changes the machine: users, services, folders outside the repository"
_JAVA_TOOLS = "Kafka's tools start a Java process for each command; tests/end_to_end/test_java_*tools.py run them"

ALLOWED: dict[tuple[str, str], str] = {
    ("README.md", "scripts/test"): "this is one of the tests that it runs",
}
