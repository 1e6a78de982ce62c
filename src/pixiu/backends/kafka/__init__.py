"""The log on Kafka, through confluent-kafka (librdkafka)."""
