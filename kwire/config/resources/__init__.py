"""The settings of topics, groups and client metrics subscriptions, under Kafka's names."""
