"""Topics of a prefix on a real broker."""

from dataclasses import replace

import pytest

from producer.kafka.topics import TopicAdmin, TopicSettings


@pytest.mark.parametrize("partitions", [1, 12])
def test_thousands_are_more_than_a_controller_takes_in_one_request(
    kafka: str, topic_prefix: str, partitions: int
) -> None:
    """Each partition and each setting is one of the 10,000 records that it takes."""
    settings = replace(TopicSettings(), partitions=partitions)
    admin = TopicAdmin({"bootstrap.servers": kafka}, settings)

    admin.try_to_make(f"{topic_prefix}.public.t{n}" for n in range(3_000))
