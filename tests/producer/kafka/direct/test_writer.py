"""What the direct writer refuses; what it writes is for a real broker (test_delivery)."""

from typing import Any

import pytest

from producer.errors import Unsupported
from producer.kafka.direct.settings import refusal, settings_of
from producer.kafka.direct.writer import DirectWriter


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"security.protocol": "SASL_SSL"}, "security.protocol = sasl_ssl"),
        ({"compression.type": "snappy"}, "compression.type = snappy"),
        ({"plugin.library.paths": "x", "ssl.ca.location": "y"}, "ssl.ca.location"),
    ],
)
def test_a_setting_that_is_not_followed_is_refused_by_name(
    settings: dict[str, Any], named: str
) -> None:
    with pytest.raises(Unsupported) as caught:
        DirectWriter({"bootstrap.servers": "127.0.0.1:9", **settings}, None)

    assert named in str(caught.value)
    assert 'producer = "librdkafka"' in str(caught.value)


def test_a_batch_is_never_larger_than_a_message_may_be() -> None:
    settings = {"bootstrap.servers": "a:1, [::1]:2", "message.max.bytes": 5000}

    assert refusal(settings) is None
    assert settings_of(settings).batch_bytes == 5000
    assert settings_of(settings).servers == [("a", 1), ("::1", 2)]
