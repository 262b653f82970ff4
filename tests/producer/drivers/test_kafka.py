"""What of the Kafka drivers needs no broker."""

from producer.drivers.kafka import Delivery


def delivery():
    return Delivery(
        {"bootstrap.servers": "127.0.0.1:1", "log_level": 0},
        prefix="t",
        cuts_topic="t.cuts",
        transaction_timeout=10,
        exactly_once=True,
        max_row_bytes=1 << 20,
    )


def test_what_is_acknowledged_during_a_flush_comes_with_its_answer():
    one = delivery()
    one._acknowledged.append(("t.a", 0, 7))  # as the worker's flush does
    one._busy = True

    assert one.poll() == []

    one._busy = False
    assert one.poll() == [("t.a", 0, 7)]
    one.close()
