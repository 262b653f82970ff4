"""Where the services answer, and how a Spark session of this machine is set up for them."""

import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from gauss_cdc_lab.services.errors import ServiceError


@dataclass(frozen=True, slots=True)
class Addresses:
    """Everything a program needs to use the services."""

    postgres_host: str
    postgres_port: int
    postgres_user: str
    kafka_bootstrap: str
    registry_url: str  # ends in /apis/ccompat/v7, or whatever the registry's own root is
    spark_jars: tuple[Path, ...]
    java_home: Path
    postgres_password: str = field(default="", repr=False)  # of the user; "": none is asked for

    def postgres_url(self, database: str = "postgres") -> str:
        """For programs: the administrator's, with the password where there is one."""
        password = f":{quote(self.postgres_password, safe='')}" if self.postgres_password else ""
        return self.public_url(database, f"{self.postgres_user}{password}")

    def public_url(self, database: str, user: str) -> str:
        """Without a password."""
        return f"postgresql://{user}@{self.postgres_host}:{self.postgres_port}/{database}"

    def environment(self) -> dict[str, str]:
        """As variables; with GAUSS_CDC_SERVICES=external another program uses these services."""
        return {
            "GAUSS_CDC_SERVICES": "external",
            "GAUSS_CDC_POSTGRES_URL": self.postgres_url(),
            "GAUSS_CDC_KAFKA_BOOTSTRAP": self.kafka_bootstrap,
            "GAUSS_CDC_REGISTRY_URL": self.registry_url,
            "JAVA_HOME": str(self.java_home),
            "PYSPARK_PYTHON": sys.executable,
        }


def spark_confs(addresses: Addresses) -> dict[str, str]:
    """Configuration of a local Spark session.

    Set JAVA_HOME (`use_java`) before the session is made.
    """
    return {
        "spark.jars": ",".join(map(str, addresses.spark_jars)),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        # Short runs compile little: measured 17 to 39 % faster.
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.pyspark.python": sys.executable,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        # Renames instead of Hadoop's FileContext: an empty batch takes 36 ms, not 95.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing"
            ".FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # More consumers than this in one executor thrash; above the number of partitions.
        "spark.kafka.consumer.cache.capacity": "256",
    }


def use_java(addresses: Addresses) -> None:
    """Let a Spark session that this process makes run on the Java that was found."""
    os.environ["JAVA_HOME"] = str(addresses.java_home)
    os.environ["PYSPARK_PYTHON"] = sys.executable


def from_environment(*, spark_jars: tuple[Path, ...], java_home: Path) -> Addresses:
    """The services named by the variables of `Addresses.environment`."""
    named = {
        name: os.environ.get(name, "")
        for name in (
            "GAUSS_CDC_POSTGRES_URL",
            "GAUSS_CDC_KAFKA_BOOTSTRAP",
            "GAUSS_CDC_REGISTRY_URL",
        )
    }
    if missing := [name for name, value in named.items() if not value]:
        raise ServiceError(
            f"GAUSS_CDC_SERVICES=external, but {', '.join(missing)} is not set",
            hint='Name your services, for instance by: eval "$(gauss-cdc services env)"',
        )
    url = urlsplit(named["GAUSS_CDC_POSTGRES_URL"])
    return Addresses(
        postgres_host=url.hostname or "127.0.0.1",
        postgres_port=url.port or 5432,
        postgres_user=url.username or "postgres",
        postgres_password=unquote(url.password or ""),
        kafka_bootstrap=named["GAUSS_CDC_KAFKA_BOOTSTRAP"],
        registry_url=named["GAUSS_CDC_REGISTRY_URL"],
        spark_jars=spark_jars,
        java_home=java_home,
    )
