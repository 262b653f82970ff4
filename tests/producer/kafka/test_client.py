"""librdkafka's errors as ours."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from producer.errors import (
    BrokerDown,
    CdcError,
    Fenced,
    GroupUnusable,
    KafkaNotPermitted,
    RowTooLarge,
)
from producer.errors import KafkaError as OurKafkaError
from producer.kafka.client import of_error, ours


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError._FENCED, Fenced),
        (KafkaError.INVALID_PRODUCER_EPOCH, Fenced),
        (KafkaError._TRANSPORT, BrokerDown),
        (KafkaError._MSG_TIMED_OUT, BrokerDown),
        (KafkaError.MSG_SIZE_TOO_LARGE, RowTooLarge),
        (KafkaError._PURGE_QUEUE, GroupUnusable),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, GroupUnusable),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaNotPermitted),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaNotPermitted),
        (KafkaError.INVALID_CONFIG, OurKafkaError),
        (KafkaError.INVALID_REPLICATION_FACTOR, OurKafkaError),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, OurKafkaError),
    ],
)
def test_the_class_of_an_error_says_what_to_do(code: int, error: type[CdcError]) -> None:
    assert type(of_error(KafkaError(code))) is error


@pytest.mark.parametrize(
    ("code", "setting"),
    [
        (KafkaError.INVALID_REPLICATION_FACTOR, "kafka.replication"),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
        (KafkaError.MSG_SIZE_TOO_LARGE, "kafka.max-row-bytes"),
    ],
)
def test_what_a_setting_causes_names_it(code: int, setting: str) -> None:
    assert setting in of_error(KafkaError(code)).hint


def test_a_system_error_is_what_caused_it() -> None:
    hidden = SystemError("returned a result with an exception set")
    hidden.__cause__ = KafkaException(KafkaError(KafkaError._FENCED))

    assert type(ours(hidden)) is Fenced
    came_before = SystemError("returned a result with an exception set")
    came_before.__context__ = hidden
    assert type(ours(came_before)) is Fenced
    assert type(ours(SystemError("other"))) is OurKafkaError
    kept = BrokerDown("as it is")
    assert ours(kept) is kept
