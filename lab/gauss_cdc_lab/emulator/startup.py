"""What a startup message may ask for, at which port, and what a login is greeted with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gauss_cdc_lab.emulator.frames import ErrorResponse, parameter
from gauss_cdc_lab.emulator.product import EmulatedProduct

_ON: Final = {"true", "on", "yes", "1"}
_OFF: Final = {"", "false", "off", "no", "0"}

# In the order in which a server sends them; {} is filled in.
_PARAMETERS: Final = (
    ("application_name", "{application_name}"),
    ("b_format_behavior_compat_options", ""),
    ("behavior_compat_options", ""),
    ("cgroup_name", ""),
    ("character_set_connection", "{server_encoding}"),
    ("client_encoding", "{client_encoding}"),
    ("collation_connection", ""),
    ("connection_info", ""),
    ("d_format_behavior_compat_options", ""),
    ("DateStyle", "{DateStyle}"),
    ("disable_keyword_options", ""),
    ("enable_record_nettime", "off"),
    ("integer_datetimes", "on"),
    ("IntervalStyle", "{IntervalStyle}"),
    ("is_sysadmin", "{is_sysadmin}"),
    ("memory_detail_tracking", ""),
    ("plsql_compile_check_options", ""),
    ("query_band", ""),
    ("server_encoding", "{server_encoding}"),
    ("server_version", "9.2.4"),
    ("session_authorization", ""),
    ("session_respool", "invalid_pool"),
    ("standard_conforming_strings", "on"),
    ("TimeZone", "{TimeZone}"),
    ("uppercase_attribute_name", "off"),
)


def is_replication(words: Mapping[str, str], product: EmulatedProduct, *, is_ha: bool) -> bool:
    """Whether this is a walsender's connection; Refused if it may not be one at this port."""
    value = words.get("replication", "").lower()
    if value not in _ON | _OFF | {"database"}:
        raise ErrorResponse(
            'invalid value for parameter "replication"',
            "22023",
            hint="Valid values are: false, 0, true, 1, data, database.",
        )
    is_asked = value not in _OFF
    if product.has_thread_pool:
        if is_asked and not is_ha:
            raise ErrorResponse("replication should connect HA port in thread_pool", "22023")
        if not is_asked and is_ha:
            raise ErrorResponse("the local listen ip and port is not for the gsql client", "57P03")
    if value in _ON:
        raise ErrorResponse("physical replication is not emulated", "0A000")
    return is_asked


def parameters(words: Mapping[str, str], settings: Mapping[str, str], *, is_admin: bool) -> bytes:
    """All ParameterStatus messages."""
    values = {
        "application_name": words.get("application_name", ""),
        "is_sysadmin": "on" if is_admin else "off",
        **settings,
    }
    return b"".join(parameter(name, value.format(**values)) for name, value in _PARAMETERS)


def no_line(words: Mapping[str, str], host: str, *, is_tls: bool) -> ErrorResponse:
    """No line of pg_hba.conf lets this user in."""
    user, database = words.get("user"), words.get("database")
    return ErrorResponse(
        f'no pg_hba.conf entry for host "{host}", user "{user}", database "{database}", '
        f"SSL {'on' if is_tls else 'off'}",
        "28000",
    )
