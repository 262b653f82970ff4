"""Real PostgreSQL, Kafka and schema registry on this machine, for demo, tests and a first try.

GAUSS_CDC_SERVICES  embedded (default): processes of ours, see `local`
                    docker: containers, see `docker`
                    external: yours, named by the variables of `Addresses.environment`
GAUSS_CDC_POSTGRES  auto (default): the machine's PostgreSQL if it is 14 or newer, else a
                    fetched one; system; embedded (17), or a version: 12, 13, 14, 16, 17, 18

Who copies a database brings services of their own; nothing here is for production.
"""

from gauss_cdc_lab.services.addresses import Addresses, spark_confs, use_java
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.kept import down, env, running, up
from gauss_cdc_lab.services.local import NAMES, LocalServices, Name

__all__ = [
    "NAMES",
    "Addresses",
    "LocalServices",
    "Name",
    "ServiceError",
    "down",
    "env",
    "running",
    "spark_confs",
    "up",
    "use_java",
]
