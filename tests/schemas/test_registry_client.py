"""What a registry's answer is, before anybody reads it."""

import json

import pytest

from schemas.registry_client import is_avro, settings


@pytest.mark.parametrize("text", ['{"type": "record"}', '"string"', '["null", "int"]'])
def test_a_schema_of_any_form_is_avro(text: str) -> None:
    assert is_avro(text, None)
    assert is_avro(text, "AVRO")
    assert not is_avro(text, "JSON")


@pytest.mark.parametrize("answer", [None, 5, "", "no JSON", "5", "null", json.dumps({"a": 1})])
def test_an_answer_that_is_no_schema_is_an_error(answer: object) -> None:
    with pytest.raises(ValueError, match=r"schema|JSON|Expecting"):
        is_avro(answer, "AVRO")


def test_another_language_is_not_read() -> None:
    assert not is_avro("no JSON", "PROTOBUF")
    with pytest.raises(ValueError, match="without a schema"):
        is_avro(None, "PROTOBUF")


def test_settings_are_the_registrys_own_over_those_of_ours() -> None:
    found = settings("http://registry", {"timeout": "9", "basic.auth.user.info": "a:b"})

    assert found["url"] == "http://registry"
    assert (found["timeout"], found["basic.auth.user.info"]) == (9.0, "a:b")
    assert settings("http://registry", {"cache.capacity": "9"})["cache.capacity"] == 9.0
    assert settings("http://registry", None).keys() - {"url"}
    assert settings("http://registry", {"url": "http://other"})["url"] == "http://other"
