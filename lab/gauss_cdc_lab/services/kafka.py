"""One Kafka broker: KRaft, broker and controller in one process, loopback only."""

import base64
import logging
import signal
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from gauss_cdc.runtime.java import Java
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.process import LOOPBACK, ProcessCommand, accepts

# Everything that is kept three times in a cluster is kept once.  A librdkafka
# producer may ask for a transaction.timeout.ms of up to transaction.max.timeout.ms.
# A killed broker may only come back when its session has run out (default 9 s).
# At rest nothing is written: by default the controller notes twice a second that nothing happened.
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.max.timeout.ms=900000
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
metadata.max.idle.interval.ms=0
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=16777216
"""

_LOG4J: Final = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d{ISO8601} %p %c{1} %m%n"/></Console>
  </Appenders>
  <Loggers>
    <Logger name="kafka.server.KafkaRaftServer" level="INFO"/>
    <Root level="WARN"><AppenderRef ref="out"/></Root>
  </Loggers>
</Configuration>
"""

_MUTE: Final = logging.getLogger("gauss_cdc_lab.services.mute")
_MUTE.disabled = True


class KafkaService:
    """A broker whose data live in `directory`.

    4.2, not 4.3: 4.3.1 takes a partition without a leader for one that was deleted, and leaves out
    the markers of a commit that was decided when the broker was killed.  Such a partition stays
    open for ever; test_services shows it.
    """

    name: Final = "kafka"
    stop_signal: Final = signal.SIGTERM
    transient: Final = None

    def __init__(
        self,
        directory: Path,
        *,
        java: Java,
        jars: Sequence[Path],
        port: int,
        controller: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` of the broker replace ours."""
        self._directory, self._java, self._jars = directory, java, jars
        self._port, self._controller = port, controller
        self._settings = settings or {}

    def prepare(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        data = self._directory / "data"
        (self._directory / "log4j2.xml").write_text(_LOG4J, encoding="utf-8")
        self._properties.write_text(
            _PROPERTIES.format(
                host=LOOPBACK, port=self._port, controller=self._controller, data=data
            )
            + "".join(f"{name}={value}\n" for name, value in self._settings.items()),
            encoding="utf-8",
        )
        if (data / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        # An id that starts with a dash would be taken for an option.
        cluster = f"g{cluster[1:]}"
        ran = self._run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", self._properties)
        if (done := ran.run()).returncode != 0:
            raise ServiceError(f"Kafka cannot format {data}:\n{done.stdout}{done.stderr}")

    def command(self) -> ProcessCommand:
        return self._run("kafka.Kafka", self._properties)

    def answers(self) -> bool:
        return accepts(self._port) and answers(f"{LOOPBACK}:{self._port}")

    @property
    def _properties(self) -> Path:
        return self._directory / "server.properties"

    def _run(self, main: str, *arguments: str | Path) -> ProcessCommand:
        options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xms128m", "-Xmx384m")
        log4j = f"-Dlog4j2.configurationFile={self._directory / 'log4j2.xml'}"
        # Never a `*`: Spark's kafka-clients may lie in the same folder.
        classpath = ":".join(map(str, self._jars))
        return ProcessCommand(
            (self._java.executable, *options, log4j, "-cp", classpath, main, *arguments),
            directory=self._directory,
        )


def answers(bootstrap: str) -> bool:
    """Whether a broker is in its own cluster's metadata; a listening port is too early."""
    # The client would print each failed attempt on stderr.
    asked = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}, logger=_MUTE)
    try:
        return bool(asked.list_topics(timeout=5).brokers)
    except KafkaException:
        return False
