"""Kafka's administrative requests as JSON: POST /kafka/{ApiName}. The handlers of the Kafka port answer them."""
