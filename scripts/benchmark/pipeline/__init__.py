"""The sixth family of works: Spark's Kafka source on both servers, and kwire's lake job.

Spark runs in separate programs, with the session settings of kwire's jobs. Run it with `scripts/bench pipeline`.
"""

FAMILY = "pipeline"
