"""Login methods: one small state machine each; none trusts the server.

A machine is a generator.  It is started with the body of the authentication
request that chose it, yields what to answer (or None: nothing to say), and is
sent each further request as `(code, body)`.  It returns when it has nothing
left to ask for; until then AuthenticationOk is refused, so that a server which
skips the proof of its own knowledge of the password is not believed.

Formats: PostgreSQL manual, "Message Flow" and "SASL Authentication"; RFC 5802
and 7677 (SCRAM), RFC 5929 (tls-server-end-point), RFC 4013 (SASLprep).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import stringprep
import unicodedata
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from producer.errors import DecodeError, LoginRefused
from producer.wire.cursor import Cursor

Machine: TypeAlias = Generator[bytes | None, tuple[int, bytes], None]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a machine may know; neither the password nor the nonce is ever printed."""

    user: str
    password: str | None = field(default=None, repr=False)
    encrypted: bool = False  # TLS, or a Unix socket
    certificate: bytes = field(default=b"", repr=False)  # the server's, DER; b"" = no TLS
    methods: frozenset[str] | None = None  # that may be asked for, as require_auth says; None: all
    channel_binding: str = "prefer"  # or disable, require
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(18), repr=False)


OK: Final = 0
_SASL_CONTINUE: Final = 11
_SASL_FINAL: Final = 12

# RFC 7677 asks for at least 4096 rounds; fewer would let a false server collect
# proofs that are cheap to guess from.  The most is what a login may cost us (about 1 s).
_ROUNDS: Final = range(4096, 2_000_001)


class Login:
    """One login: every `R` frame in, the body of a `p` frame (or None) out."""

    __slots__ = ("_credentials", "_hint", "_machine", "_methods", "_names", "done", "method")

    def __init__(
        self,
        credentials: Credentials,
        methods: Mapping[int, Method] | None = None,
        *,
        names: Mapping[int, str] | None = None,
        hint: str = "use scram-sha-256 in pg_hba.conf for this user",
    ) -> None:
        """`names` are the words of `require_auth` for each of `methods`."""
        self._credentials = credentials
        self._names = NAMES if names is None else names
        self._methods = AUTH if methods is None else methods
        self._hint = hint  # for a method that is not among them
        self._machine: Machine | None = None
        self.done = False
        self.method = ""  # what the server asked for, as `require_auth` names it

    def answer(self, body: bytes) -> bytes | None:
        """Take the body of an authentication request.

        Raises LoginRefused when we must not, or cannot, go on; DecodeError for
        an undecodable request.

        Returns the body of what is to be sent; None: nothing, as behind the last request.
        """
        cur = Cursor(body)
        code, rest = cur.u32(), cur.rest()
        if self._machine is not None:
            return self._go_on(self._machine, code, rest)
        if code == OK:
            self._check("none")
            self.done = True
            return None
        if (method := self._methods.get(code)) is None:
            raise LoginRefused(
                "the server requests an unsupported login method",
                hint=self._hint,
                method=code,
            )
        self._check(self._names.get(code, str(code)))
        self._machine = method(self._credentials, rest)
        return next(self._machine)

    def _check(self, method: str) -> None:
        """Refuse what the settings exclude, before anything is said that the password is in."""
        said = self._credentials
        if said.methods is not None and method not in said.methods:
            raise LoginRefused(
                "the server asks for a login method that require_auth excludes",
                hint="correct pg_hba.conf or the dsn; or an attacker is between",
                method=method,
                require_auth=",".join(sorted(said.methods)),
            )
        if said.channel_binding == "require" and method != "scram-sha-256":
            raise _unbound(method)
        self.method = method

    def _go_on(self, machine: Machine, code: int, rest: bytes) -> bytes | None:
        try:
            answer = machine.send((code, rest))
        except StopIteration:
            if code != OK:
                raise DecodeError("authentication request after the last one", code=code) from None
            self.done = True
            return None
        return answer


def _unbound(method: str) -> LoginRefused:
    return LoginRefused(
        "the login cannot be bound to the certificate, as channel_binding=require wants it",
        hint="use TLS and scram-sha-256 on the server; openGauss and GaussDB have no such thing",
        method=method,
    )


def cleartext(credentials: Credentials, body: bytes) -> Machine:
    """The password itself, on a protected connection only.  Raises LoginRefused on another."""
    Cursor(body).finish()
    if not credentials.encrypted:
        raise LoginRefused(
            "the server asks for the password in clear text on a connection without TLS",
            hint="set sslmode=verify-full, or a method in pg_hba.conf that keeps the password to us"
            " (scram-sha-256; sha256 in openGauss)",
        )
    yield password_of(credentials).encode() + b"\0"


def md5(credentials: Credentials, body: bytes) -> Machine:
    """PostgreSQL's own challenge and response: broken, but still in use."""
    cur = Cursor(body)
    salt = cur.take(4)
    cur.finish()
    inner = _md5_hex(password_of(credentials).encode() + credentials.user.encode())
    yield b"md5" + _md5_hex(inner + salt) + b"\0"


def _md5_hex(raw: bytes) -> bytes:
    return hashlib.md5(raw, usedforsecurity=False).hexdigest().encode()


def _sasl(credentials: Credentials, body: bytes) -> Machine:
    cur, offered = Cursor(body), list[str]()
    while name := cur.cstr():
        offered.append(name)
    cur.finish()
    may_bind = credentials.channel_binding != "disable" and credentials.certificate
    binding = server_end_point(credentials.certificate) if may_bind else b""
    if binding and _SCRAM_PLUS in offered:
        # With channel binding a man in the middle cannot pass the proofs on.
        return _scram(credentials, _SCRAM_PLUS, "p=tls-server-end-point,,", binding)
    if credentials.channel_binding == "require":
        raise _unbound("|".join(offered))
    if _SCRAM in offered:
        # "y": we could have bound, had the server offered it; it can see a downgrade.
        return _scram(credentials, _SCRAM, "y,," if binding else "n,,", b"")
    raise LoginRefused(
        "the server offers no supported SASL mechanism",
        hint="use scram-sha-256 in pg_hba.conf for this user",
        offered="|".join(offered),
    )


_SCRAM: Final = "SCRAM-SHA-256"
_SCRAM_PLUS: Final = "SCRAM-SHA-256-PLUS"


# By hand, as no library does what PostgreSQL does: scramp refuses a password that SASLprep forbids,
# which the server takes as it is, and a login without a name in its first message.
def _scram(
    credentials: Credentials, mechanism: str, header: str, binding: bytes, *, name: str = ""
) -> Machine:
    secret = saslprep(password_of(credentials)).encode()
    # PostgreSQL ignores a name here, the startup message has one; libpq sends none.
    first_bare = f"n={name},r={credentials.nonce}"
    first = (header + first_bare).encode()
    server_first = yield from _ask(
        mechanism.encode() + b"\0" + len(first).to_bytes(4, "big") + first, _SASL_CONTINUE
    )

    nonce, salt, rounds = _challenge(server_first, credentials.nonce)
    bound = base64.b64encode(header.encode() + binding).decode()
    final_bare = f"c={bound},r={nonce}"
    signed = f"{first_bare},{server_first},{final_bare}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", secret, salt, rounds)
    client_key = _hmac(salted, b"Client Key")
    signature = _hmac(hashlib.sha256(client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield from _ask(
        f"{final_bare},p={base64.b64encode(proof).decode()}".encode(), _SASL_FINAL
    )

    expected = base64.b64encode(_hmac(_hmac(salted, b"Server Key"), signed)).decode()
    if not hmac.compare_digest(_attributes(server_final).get("v", "").encode(), expected.encode()):
        raise LoginRefused(
            "the server could not prove that it knows the password",
            hint="someone may stand between us and the server; use sslmode=verify-full",
        )
    yield None


def _ask(answer: bytes, expected: int) -> Generator[bytes | None, tuple[int, bytes], str]:
    code, body = yield answer
    if code != expected:
        raise LoginRefused(
            "the server ended the login before proving that it knows the password",
            hint="someone may stand between us and the server; use sslmode=verify-full",
            code=code,
        )
    try:
        return body.decode("ascii")
    except UnicodeDecodeError:
        raise DecodeError("SCRAM message is not ASCII", size=len(body)) from None


def _challenge(server_first: str, our_nonce: str) -> tuple[str, bytes, int]:
    said = _attributes(server_first)
    nonce, rounds = said.get("r", ""), said.get("i", "")
    try:
        salt = base64.b64decode(said.get("s", ""), validate=True)
    except (binascii.Error, ValueError):
        salt = b""
    # A server's nonce must begin with ours and add to it, else the answer could be a replay.
    if not salt or len(nonce) <= len(our_nonce) or not nonce.startswith(our_nonce):
        raise LoginRefused("the server's SCRAM challenge is malformed")
    if not (rounds.isascii() and rounds.isdigit() and len(rounds) < 10 and int(rounds) in _ROUNDS):
        raise LoginRefused(
            "the server asks for too few or too many SCRAM rounds",
            hint="set scram_iterations (4096 is usual) and the user's password again",
            least=_ROUNDS[0],
            most=_ROUNDS[-1],
        )
    return nonce, salt, int(rounds)


def _attributes(message: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in message.split(","))
    return {name: value for name, _, value in pairs}


def _hmac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")


def password_of(credentials: Credentials) -> str:
    """The password; LoginRefused if there is none."""
    if credentials.password is None:
        raise LoginRefused(
            "the server asks for a password and none was given",
            hint="set GAUSS_CDC_SOURCE_PASSWORD (at the target GAUSS_CDC_TARGET_PASSWORD), or "
            "password-file",
            user=credentials.user,
        )
    return credentials.password


def saslprep(password: str) -> str:
    r"""Normalise a password as PostgreSQL does; what may not be normalised stays as it is.

    >>> saslprep("Ⅸ"), saslprep("a\u00a0b"), saslprep("a\tb")
    ('IX', 'a b', 'a\tb')
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in password
        if not stringprep.in_table_b1(char)
    )
    normal = unicodedata.normalize("NFKC", mapped)
    if not normal or any(refuses(char) for refuses in _PROHIBITED for char in normal):
        return password
    if any(stringprep.in_table_d1(char) for char in normal):  # right to left
        ends_right = stringprep.in_table_d1(normal[0]) and stringprep.in_table_d1(normal[-1])
        if not ends_right or any(stringprep.in_table_d2(char) for char in normal):
            return password
    return normal


_PROHIBITED: Final[tuple[Callable[[str], bool], ...]] = (
    stringprep.in_table_a1,
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def server_end_point(certificate: bytes) -> bytes:
    """Hash a DER certificate for channel binding; b"" when its signature names no hash we know.

    RFC 5929, section 4.1: the hash of the certificate's own signature, SHA-256
    in place of MD5 and SHA-1.
    """
    from cryptography import x509  # noqa: PLC0415  heavy, and only with TLS
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415

    try:
        signed_by = x509.load_der_x509_certificate(certificate).signature_hash_algorithm
    except (ValueError, x509.InvalidVersion, UnsupportedAlgorithm):
        return b""
    if signed_by is None:  # Ed25519
        return b""
    name = "sha256" if signed_by.name in {"md5", "sha1"} else signed_by.name
    return hashlib.new(name, certificate).digest()


Method: TypeAlias = Callable[[Credentials, bytes], Machine]

# Authentication request -> machine, as PostgreSQL numbers them.  openGauss uses
# the same numbers for other methods: its table is another one.
AUTH: Final[Mapping[int, Method]] = {3: cleartext, 5: md5, 10: _sasl}
NAMES: Final[Mapping[int, str]] = {3: "password", 5: "md5", 10: "scram-sha-256"}
