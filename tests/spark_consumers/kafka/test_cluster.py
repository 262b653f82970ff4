"""Kafka's refusals as the consumer's errors."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from schemas.errors import Verdict
from spark_consumers.kafka.cluster import down


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        (KafkaError._TRANSPORT, Verdict.RETRY),
        (KafkaError.LEADER_NOT_AVAILABLE, Verdict.RETRY),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Verdict.STOP),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Verdict.STOP),
    ],
)
def test_only_what_passes_is_tried_again(code: int, verdict: Verdict) -> None:
    error = down(KafkaException(KafkaError(code)), "cuts cannot be read")

    assert error.verdict is verdict
    assert "cuts cannot be read" in str(error)
    assert KafkaError(code).name() in str(error)
