"""Login to openGauss and GaussDB, whose method numbers 10 to 13 differ from PostgreSQL's.

One request, one answer, one OK: except with protocol 3.0 the server does not
authenticate itself, so a login is only as safe as its TLS.  The key is PBKDF2
over SHA-1, the rest SHA-256 and two fixed texts, one of them misspelt, as in the
server.  No library of SCRAM knows that: theirs are the messages and keys of RFC 5802.

The minor version in the startup message decides whether the number of rounds
is sent (3.51), assumed (3.50), or assumed and the server's own proof added
(3.0).  The shape of the request must be that of the version we asked for.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

from producer.errors import DecodeError, LoginRefused
from producer.wire import protocol
from producer.wire.auth import Credentials, Machine, Method, cleartext, md5, password_of
from producer.wire.cursor import Cursor

# auth_iteration_count is 2048 to 134,217,728, usually 10,000.  Fewer than a server can store
# would help an attacker to guess from collected proofs; ten million take five seconds.
_ROUNDS: Final = range(2048, 10_000_001)
_DEFAULT_ROUNDS: Final = 2048  # what every client assumes if none are sent

_SALT_DIGITS: Final = 64
_TOKEN_DIGITS: Final = 8
_PROOF_DIGITS: Final = 64

_MD5, _SHA256, _SM3 = 1, 2, 3  # how the server has stored the password


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys derived from a password, a salt and a number of rounds; a server stores the last two."""

    client: bytes
    stored: bytes
    server: bytes

    @classmethod
    def derive(
        cls, password: str, salt: bytes, rounds: int, hashing: Callable[[bytes], bytes]
    ) -> Keys:
        """Derive them; `hashing` makes the stored key of the client's."""
        key = hashlib.pbkdf2_hmac("sha1", password.encode(), salt, rounds, dklen=32)
        client = _hmac(key, b"Client Key")
        return cls(client, hashing(client), _hmac(key, b"Sever Key"))  # sic

    def proof(self, token: bytes) -> bytes:
        """The answer to `token`: the client's key, which only the stored one can check."""
        signature = _hmac(self.stored, token)
        return bytes(a ^ b for a, b in zip(self.client, signature, strict=True)).hex().encode()

    def signature(self, token: bytes) -> bytes:
        """The server's proof that it knows its own key."""
        return _hmac(self.server, token).hex().encode()


def methods(version: int) -> Mapping[int, Method]:
    """Give the login methods as the server numbers them, for a protocol version we asked for."""
    return MappingProxyType(
        {
            3: cleartext,
            5: md5,
            10: partial(_sha256, version),
            11: _md5_sha256,
            13: partial(_sm3, version),
        }
    )


NAMES: Final[Mapping[int, str]] = MappingProxyType(
    {3: "password", 5: "md5", 10: "sha256", 11: "md5-sha256", 13: "sm3"}
)


def _sha256(version: int, credentials: Credentials, body: bytes) -> Machine:
    cur = Cursor(body)
    stored = cur.u32()
    if stored == _SHA256:
        return _challenged(version, credentials, cur, _hash_sha256)
    if stored == _MD5:
        return _stored_md5(credentials, cur)
    raise _unknown(10, stored)


def _sm3(version: int, credentials: Credentials, body: bytes) -> Machine:
    cur = Cursor(body)
    if (stored := cur.u32()) != _SM3:
        raise _unknown(13, stored)
    return _challenged(version, credentials, cur, _hash_sm3)


def _challenged(
    version: int, credentials: Credentials, cur: Cursor, hashing: Callable[[bytes], bytes]
) -> Machine:
    salt, token = _hex(cur, _SALT_DIGITS), _hex(cur, _TOKEN_DIGITS)
    rounds, proof = _DEFAULT_ROUNDS, b""
    if version >= protocol.V3_51:
        rounds = cur.u32()
    elif version < protocol.V3_50:
        proof = cur.take(_PROOF_DIGITS)
    cur.finish()
    if rounds not in _ROUNDS:
        raise LoginRefused(
            "the server asks for too few or too many rounds of hashing",
            hint="set auth_iteration_count (10000 is usual) and the user's password again",
            least=_ROUNDS[0],
            most=_ROUNDS[-1],
        )
    keys = Keys.derive(password_of(credentials), salt, rounds, hashing)
    if proof and not hmac.compare_digest(keys.signature(token), proof):
        raise LoginRefused(
            "the server could not prove that it knows the password",
            hint="check the password; with protocol 3.0 it must have been stored with 2048 rounds"
            " (auth_iteration_count); 3.51 has no such limit",
        )
    yield keys.proof(token) + b"\0"


def _stored_md5(credentials: Credentials, cur: Cursor) -> Machine:
    salt = cur.take(4)
    cur.finish()
    secret = password_of(credentials).encode() + credentials.user.encode()
    inner = hashlib.md5(secret, usedforsecurity=False).hexdigest().encode()
    yield b"sha256" + hashlib.sha256(inner + salt).hexdigest().encode() + b"\0"


def _md5_sha256(credentials: Credentials, body: bytes) -> Machine:
    # No number of rounds here in any version: it works for passwords stored with 2048 only.
    cur = Cursor(body)
    salt_hex, salt = cur.take(_SALT_DIGITS), cur.take(4)
    cur.finish()
    raw = _hex(Cursor(salt_hex), _SALT_DIGITS)
    keys = Keys.derive(password_of(credentials), raw, _DEFAULT_ROUNDS, _hash_sha256)
    known = salt_hex + keys.server.hex().encode() + keys.stored.hex().encode()
    yield b"md5" + hashlib.md5(known + salt, usedforsecurity=False).hexdigest().encode() + b"\0"


def _hex(cur: Cursor, digits: int) -> bytes:
    try:
        return binascii.unhexlify(cur.take(digits))
    except binascii.Error:
        raise DecodeError("authentication request without its hex digits", want=digits) from None


def _unknown(code: int, stored: int) -> LoginRefused:
    return LoginRefused(
        "the server requests an unsupported login method",
        hint=HINT,
        method=code,
        stored=stored,
    )


HINT: Final = (
    "use sha256 in pg_hba.conf for this user, and set the password again under"
    " password_encryption_type = 2"
)


def _hash_sha256(raw: bytes) -> bytes:
    return hashlib.sha256(raw).digest()


def _hash_sm3(raw: bytes) -> bytes:
    """SM3 (GB/T 32905-2016), which `hashlib` has only where the system's OpenSSL has it.

    >>> _hash_sm3(b"abc").hex()
    '66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0'
    """
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  for this login only
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415

    try:
        hashing = hashes.Hash(hashes.SM3())
    except UnsupportedAlgorithm as error:
        raise LoginRefused(
            "the server asks for a login by SM3, and OpenSSL has none here",
            hint="install cryptography's wheel of PyPI, whose OpenSSL has it; or " + HINT,
        ) from error
    hashing.update(raw)
    return hashing.finalize()


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
