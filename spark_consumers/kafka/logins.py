"""Logins that others could read on the network are refused, for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemas import plaintext
from spark_consumers.errors import SettingRefused


def check_logins(
    client: Mapping[str, Any], registry: object, registry_options: Mapping[str, Any]
) -> None:
    """Raise SettingRefused where a login could be read on the network."""
    found = list(plaintext.of_kafka(client))
    if isinstance(registry, str):
        found += plaintext.of_registry(registry, registry_options)
    for setting, why in found:
        raise SettingRefused(
            "a login is refused",
            hint=f"{why}; or allow it where nobody else reads that network "
            "(allow_plaintext_login, in the data source allowPlaintextLogin)",
            setting=setting,
        )
