"""Which settings are secret, and which values contain a password: by their words."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from producer.sources.dsn import names_in

# Names of settings that hold a secret: words of it, anywhere between dots, dashes, humps.
_WORD: Final = re.compile(
    r"pass(?:word|wd|phrase|code)?\d*(?:$|[._-])|password|passphrase|secret|token|credential"
    r"|(?:^|[._-])(?:key|pwd|sas)$|(?:access|account|api|private|shared|encryption)[._-]?key"
    r"|jaas|user\.?info|bearer|(?:key|assertion)\.pem$|oauthbearer\.config$",
    re.IGNORECASE,
)
# … and names of locations or kinds of secrets.
_HARMLESS: Final = re.compile(
    r"(?:location|file|files|path|dir|url|uri|type|class|provider|providers|algorithm|name"
    r"|method|endpoint|enabled|enable|seconds|ms|interval|timeout|id|scope|deserializer|serializer"
    r"|mechanism|regex)$|^spark\.kubernetes\.(?:driver|executor)\.secret(?:s|KeyRef)\.",
    re.IGNORECASE,
)
IN_URL: Final = re.compile(r"(//[^/@\s]*?:)[^/@\s]+@")
# A quoted value ends at its own kind of quote, also within JSON, where that is escaped. Behind a
# colon only a quoted one is a value: `password: the variable is not set` is a sentence.
_QUOTED: Final = (
    r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"|\\\"[^\"\\]*\\\"|'[^']*'"  # "…", \"…\" within JSON, '…'
)
SETTING: Final = re.compile(
    r"((?:password|passwd|passphrase|secret|token|credentials?|private[._-]?key|user\.info)"
    r"\\?['\"]?\s?(?:=\s?|:\s?(?=\\?['\"])))"
    rf"(?:{_QUOTED}|[^\s,;&'\"\\}})]+)",
    re.IGNORECASE,
)
PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END|\Z)", re.DOTALL)
_DSN_SECRETS: Final = {"password", "sslpassword", "scram_client_key", "oauth_client_secret"}


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret.

    >>> is_secret("ssl.key.password"), is_secret("fs.s3a.secret.key"), is_secret("ssl.key.pem")
    (True, True, True)
    >>> is_secret("ssl.key.location"), is_secret("sasl.oauthbearer.token.endpoint.url")
    (False, False)
    """
    return bool(_WORD.search(name)) and not _HARMLESS.search(name)


def holds_secret(value: object) -> bool:
    """Whether a value that should be public contains a password.

    >>> holds_secret("http://me:pencil@proxy"), holds_secret("-Djavax.trustStorePassword=x")
    (True, True)
    """
    if not isinstance(value, str):
        return False
    return bool(
        IN_URL.search(value)
        or SETTING.search(value)
        or PRIVATE_KEY.search(value)
        or _DSN_SECRETS & {unquote(name).lower() for name in names_in(value)}
    )
