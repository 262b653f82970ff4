"""Print the changes of one table, as they come.

python table.py localhost:9092 http://localhost:8081 bank.public.account
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

bootstrap, registry, topic = sys.argv[1:]
settings = {
    "bootstrap.servers": bootstrap,
    "group.id": f"table-example-{topic}",  # where it stands: a restart goes on from there
    "isolation.level": "read_committed",  # nothing of transactions that were given up
    "auto.offset.reset": "earliest",
}
avro = AvroDeserializer(SchemaRegistryClient({"url": registry}))
consumer = Consumer(settings)
consumer.subscribe([topic])
while True:
    message = consumer.poll(1)
    if message is None:
        continue
    if message.error():
        raise KafkaException(message.error())
    if message.value() is None:
        continue  # a tombstone behind a delete, for compaction; only with key = "primary-key"
    key = message.key() or b""  # text; with key = "primary-key" the key's columns in Avro
    is_text = not key.startswith(b"\0")
    line = {
        "key": key.decode() if is_text else avro(key, SerializationContext(topic, MessageField.KEY))
    }
    line |= {name: text.decode() for name, text in message.headers()}  # xid, csn, lsn, position
    change = avro(message.value(), SerializationContext(topic, MessageField.VALUE))
    line |= {name: change[name] for name in ("op", "before", "after")}
    print(json.dumps(line, default=str), flush=True)
