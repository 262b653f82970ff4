"""Fixtures for all tests.

Unit tests (tests/schemas, producer, spark_consumers, gauss_cdc) need nothing but
Python.  Tests in integration and e2e ask for services or Spark, which start when
the first test asks and stop at the end of the run.
"""

from hypothesis import settings

pytest_plugins = [
    "tests.machine",
    "tests.services_fixtures",
    "tests.shared_classes",
    "tests.versions",
    "tests.workers",
]

settings.register_profile("loaded machine", deadline=None)  # slowness is no failure
settings.load_profile("loaded machine")
