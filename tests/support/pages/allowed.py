"""The command blocks that are not run, by page and first line, each with its reason."""

_BENCH = "takes minutes to hours; the options are tested by tests/end_to_end/test_bench_*.py"
_SPARK = "needs Java and Spark, and takes half a minute each; tests/pipeline runs every job"
_SYSTEM = "changes the machine: users, services, folders outside the repository"
_JAVA_TOOLS = "Kafka's tools start a Java process for each command; tests/end_to_end/test_java_*tools.py run them"

ALLOWED: dict[tuple[str, str], str] = {
}
