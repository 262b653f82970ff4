"""TLS and logins of a registry: the real one, behind a proxy that asks for both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from producer.errors import RegistryError
from producer.kafka.registry import Registry
from spark_consumers.errors import RegistryRefused
from spark_consumers.kafka.registry import registry_at
from tests.certificates import authority, written
from tests.integration.private_registry import Front, private_registry

SCHEMA = '{"type": "record", "name": "row", "fields": []}'


@pytest.fixture(scope="module")
def front(registry_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    with private_registry(registry_url, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.mark.parametrize("how", ["good", "mutual"])
def test_both_clients_reach_a_registry_behind_tls_and_a_login(
    front: Front, topic_prefix: str, how: str
) -> None:
    options = front.options(mutual=how == "mutual")

    schema_id = Registry(front.urls[how], options).register(topic_prefix, SCHEMA)

    assert registry_at(front.urls[how], options)(schema_id)["name"] == "row"


@pytest.mark.parametrize("how", ["expired", "self-signed", "wrong name", "stranger", "password"])
def test_both_clients_say_what_is_not_right(front: Front, topic_prefix: str, how: str) -> None:
    url, options = front.urls.get(how, front.urls["good"]), front.options()
    if how == "stranger":
        other = written(front.folder / "other.crt", authority("Other").pem)
        options["ssl.ca.location"] = str(other)
    if how == "password":
        options["basic.auth.user.info"] = "cdc:wrong-one"

    with pytest.raises(RegistryError) as ours:
        Registry(url, options).register(topic_prefix, SCHEMA)
    with pytest.raises(RegistryRefused) as theirs:
        registry_at(url, options)(1)

    for error in (ours.value, theirs.value):
        assert error.where["status"] == 401 if how == "password" else error.where["reason"]
        assert error.hint
        assert "wrong-one" not in str(error)
    assert type(ours.value) is RegistryError  # no retry mends it
