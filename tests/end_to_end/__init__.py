"""Stock clients against a real server process.

The whole folder can be aimed at any running broker, `KWIRE_TEST_BOOTSTRAP=host:port pytest tests/end_to_end`: run so
against Apache Kafka it proves that a test asks for what Kafka does. Tests that need a kwire process of their own are
then left out.
"""
