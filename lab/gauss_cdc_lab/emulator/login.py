"""The server's side of a login: its challenge, and the check of the answer.

No input or output: `Gate` makes a challenge from the account, the protocol's
minor number and random bytes, and judges the client's answer.  Keys are derived
once an account and kept; the password itself is not.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Final

from gauss_cdc_lab.emulator.frames import ErrorResponse, message

OLDEST_GAUSS: Final = 50  # below: 3.0, whose clients get a signature instead of a count
ROUNDS: Final = 10_000

_OK, _PLAIN, _MD5, _SHA256, _MD5_SHA256, _SM3 = 0, 3, 5, 10, 11, 13


class StoredPassword(StrEnum):
    """What the server keeps of a password."""

    SHA256 = "sha256"  # password_encryption_type 2
    COMBINED = "combined"  # type 1: SHA256 and MD5
    MD5 = "md5"  # type 0
    SM3 = "sm3"  # type 3
    MD5_OLD = "md5-in-sha256"  # type 0 as servers of long ago asked for it: code 10, method 1


class Line(StrEnum):
    """The method of the line in pg_hba.conf."""

    SHA256 = "sha256"
    MD5 = "md5"
    SM3 = "sm3"
    PASSWORD = "password"  # noqa: S105  a method's name
    TRUST = "trust"
    REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Account:
    """Who may log in, and how; `salt` is 32 bytes."""

    name: str
    password: str = field(repr=False)
    stored: StoredPassword = StoredPassword.SHA256
    line: Line = Line.SHA256
    rounds: int = ROUNDS
    salt: bytes = field(default_factory=lambda: os.urandom(32))
    may_replicate: bool = True
    is_admin: bool = False


@dataclass(frozen=True, slots=True)
class Challenge:
    """The `R` message to send and who judges the answer; no answer is asked for if None."""

    frame: bytes
    judge: Callable[[bytes], bool] | None


class Gate:
    """Challenges for accounts, and for users that do not exist."""

    def __init__(
        self, accounts: list[Account], *, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._accounts = {account.name: account for account in accounts}
        self._random = random
        self._secret = os.urandom(16)

    def account(self, user: str) -> Account | None:
        """The account of that name."""
        return self._accounts.get(user)

    def challenge(self, user: str, minor: int) -> Challenge:
        """What to ask of `user`, who speaks protocol 3.`minor`."""
        account = self._accounts.get(user)
        if account is None:
            return self._fake(user, minor)
        line, stored = account.line, account.stored
        if line is Line.TRUST:
            return Challenge(b"", None)
        if line is Line.PASSWORD:
            return Challenge(_request(_PLAIN), account.password.encode().__eq__)
        if stored is StoredPassword.MD5_OLD:
            return self._md5_in_sha256(account)
        if stored is StoredPassword.MD5 or (
            stored is StoredPassword.COMBINED and _is_downgraded(line, minor)
        ):
            return self._md5(account)
        if line is Line.MD5:
            return self._md5_sha256(account)
        return self._proof(account, minor)

    def _fake(self, user: str, minor: int) -> Challenge:
        """As if there were one: the same salt for the same name, and never right."""
        salt = hashlib.sha256(self._secret + user.encode()).digest()
        ghost = Account(user, "", salt=salt)
        return Challenge(self._proof(ghost, minor).frame, lambda _: False)

    def _proof(self, account: Account, minor: int) -> Challenge:
        is_sm3 = account.stored is StoredPassword.SM3
        keys = _keys(account.password, account.salt, account.rounds, is_sm3)
        token = self._random(4)
        body = account.salt.hex().encode() + token.hex().encode()
        if minor < OLDEST_GAUSS:
            body += hmac.digest(keys.server, token, "sha256").hex().encode()
        elif minor > OLDEST_GAUSS:
            body += account.rounds.to_bytes(4, "big")
        method = (3 if is_sm3 else 2).to_bytes(4, "big")

        def judge(answer: bytes) -> bool:
            try:
                proof = bytes.fromhex(answer.decode("ascii"))
            except ValueError:
                return False
            if len(answer) != 64:
                return False
            mask = hmac.digest(keys.stored, token, "sha256")
            client = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
            return hmac.compare_digest(_digest(client, is_sm3=is_sm3), keys.stored)

        return Challenge(_request(_SM3 if is_sm3 else _SHA256, method + body), judge)

    def _md5(self, account: Account) -> Challenge:
        salt = self._random(4)
        inner = _md5_hex(account.password.encode() + account.name.encode())
        return Challenge(_request(_MD5, salt), _is(b"md5" + _md5_hex(inner + salt)))

    def _md5_sha256(self, account: Account) -> Challenge:
        keys = _keys(account.password, account.salt, account.rounds, False)  # noqa: FBT003
        salt = self._random(4)
        kept = b"".join(part.hex().encode() for part in (account.salt, keys.server, keys.stored))
        frame = _request(_MD5_SHA256, account.salt.hex().encode() + salt)
        return Challenge(frame, _is(b"md5" + _md5_hex(kept + salt)))

    def _md5_in_sha256(self, account: Account) -> Challenge:
        salt = self._random(4)
        inner = _md5_hex(account.password.encode() + account.name.encode())
        frame = _request(_SHA256, (1).to_bytes(4, "big") + salt)
        digest = hashlib.sha256(inner + salt).hexdigest().encode()
        return Challenge(frame, _is(b"sha256" + digest))


def granted() -> bytes:
    """AuthenticationOk."""
    return _request(_OK)


def denied() -> ErrorResponse:
    """The same answer to every wrong password."""
    return ErrorResponse("Invalid username/password,login denied.", "28P01")


@dataclass(frozen=True, slots=True)
class _Keys:
    server: bytes
    stored: bytes


@cache
def _keys(password: str, salt: bytes, rounds: int, is_sm3: bool) -> _Keys:  # noqa: FBT001
    # SHA-1 inside, and "Sever" without its r: both are what the product does.
    key = hashlib.pbkdf2_hmac("sha1", password.encode(), salt, rounds, 32)
    client = hmac.digest(key, b"Client Key", "sha256")
    return _Keys(hmac.digest(key, b"Sever Key", "sha256"), _digest(client, is_sm3=is_sm3))


def _digest(data: bytes, *, is_sm3: bool) -> bytes:
    return hashlib.new("sm3" if is_sm3 else "sha256", data).digest()


def _md5_hex(data: bytes) -> bytes:
    return hashlib.md5(data).hexdigest().encode()  # noqa: S324  the product's method


def _is(expected: bytes) -> Callable[[bytes], bool]:
    return lambda answer: hmac.compare_digest(answer, expected)


def _is_downgraded(line: Line, minor: int) -> bool:
    return line is Line.MD5 or minor < OLDEST_GAUSS


def _request(code: int, payload: bytes = b"") -> bytes:
    return message(b"R", code.to_bytes(4, "big") + payload)
