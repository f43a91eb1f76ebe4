"""Where programs find a server unless they are told: environment variables and defaults, also for Spark jobs."""

BOOTSTRAP_VARIABLE, HTTP_VARIABLE = "KWIRE_BOOTSTRAP_SERVER", "KWIRE_HTTP"
BOOTSTRAP_DEFAULT = "127.0.0.1:9092"
HTTP_DEFAULT = "http://127.0.0.1:8082"
