import contextlib
import hashlib
import hmac
import itertools

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import DecodeError, LoginRefused
from producer.sources.gauss.login import HINT, Keys, _hash_sm3, methods
from producer.wire import protocol
from producer.wire.auth import Credentials, Login
from tests.producer.wire.transcripts import Conversation, all_conversations

PASSWORD, SALT, TOKEN = "Gauss@123", "4d5a" * 16, "01020304"

# Known answers, computed by openGauss' own JDBC driver for the inputs above.
PROOF_10000 = b"ebc77958e1906dab08381b67bd5aa8919f62911c4cbe3a7db847a44c06bff5a5"
PROOF_2048 = b"17278b75f74ab0094c8f478dcafe89bf7f7ccfab54982ad5969353f6205188eb"
SIGNATURE_2048 = b"9d99fa37764e4f12588b3167afbb26350b18ca6cb9121cd4ed9c77d64cb72bb9"
MD5_SHA256 = b"md5cf8b69b26711fdf66ae7850e955f7afc"


def login(version: int = protocol.V3_51, password: str | None = PASSWORD) -> Login:
    return Login(Credentials(user="u", password=password), methods(version), hint=HINT)


def number(value: int) -> bytes:
    return value.to_bytes(4, "big")


def challenge(more: bytes = b"", *, code: int = 10, stored: int = 2) -> bytes:
    return number(code) + number(stored) + SALT.encode() + TOKEN.encode() + more


def refused_or_broken(version: int, body: bytes) -> type[Exception]:
    with pytest.raises((LoginRefused, DecodeError)) as caught:
        login(version).answer(body)
    return caught.type


def test_keys_follow_the_known_vector() -> None:
    keys = Keys.derive(
        PASSWORD, bytes.fromhex(SALT), 10_000, lambda raw: hashlib.sha256(raw).digest()
    )

    assert keys.server.hex() == "e8a4c7fa8ab1e6275d3ca039aba80e67be2fcd80a1fd1d2f03e59d8b69887e46"
    assert keys.client.hex() == "c9cf3a565640bc107f6f89959abe63dabcb9876127754f9aeb283af76c9bbced"
    assert keys.stored.hex() == "ccb53ad64455cf192d7ce26e9c739ece61a87c0ca305dc2344a0333286280f36"
    assert keys.signature(bytes.fromhex(TOKEN)) == (
        b"5dfa712356714a5c2c6e652d84ec2e2921584df371ab3293dd98197f743a6a8d"
    )


@pytest.mark.parametrize(
    ("version", "more", "proof"),
    [
        (protocol.V3_51, number(10_000), PROOF_10000),
        (protocol.V3_51, number(2048), PROOF_2048),
        (protocol.V3_50, b"", PROOF_2048),
        (protocol.V3_0, SIGNATURE_2048, PROOF_2048),
    ],
)
def test_sha256_follows_the_known_vectors(version: int, more: bytes, proof: bytes) -> None:
    who = login(version)

    assert who.answer(challenge(more)) == proof + b"\0"
    assert not who.done
    assert who.answer(number(0)) is None
    assert who.done


def proofs() -> list[tuple[Conversation, bytes, bytes]]:
    """Every recorded (challenge, proof) that a client with the right password sent."""
    found = []
    for talk in all_conversations():
        frames = [(m[:1], m[5:]) for _, m in talk.said]
        for (tag, asked), (answered_by, answer) in itertools.pairwise(frames):
            if tag == b"R" and answered_by == b"p":
                found.append((talk, asked, answer))
    return found


def test_recorded_logins_are_reproduced_byte_by_byte() -> None:
    wrong = {"bad password", "unknown user"}
    found = [(t, asked, answer) for t, asked, answer in proofs() if t.case not in wrong]

    for talk, asked, answer in found:
        password = talk.header.get("throwaway_password", "Cdc_Test@123")
        assert login(password=password).answer(asked) == answer
    assert len(found) > 40


def test_a_server_that_sends_its_proof_must_have_the_right_one() -> None:
    with pytest.raises(LoginRefused, match="could not prove"):
        login(protocol.V3_0).answer(challenge(b"0" * 64))


def test_md5_sha256_follows_the_known_vector() -> None:
    body = number(11) + SALT.encode() + bytes.fromhex("0a0b0c0d")

    assert login().answer(body) == MD5_SHA256 + b"\0"


def test_a_password_stored_as_md5_is_hashed_once_more() -> None:
    inner = hashlib.md5(PASSWORD.encode() + b"u").hexdigest().encode()

    assert login().answer(number(10) + number(1) + b"salt") == (
        b"sha256" + hashlib.sha256(inner + b"salt").hexdigest().encode() + b"\0"
    )


def test_plain_md5_is_postgresqls() -> None:
    # From the tests of rust-postgres.
    who = Login(Credentials(user="md5_user", password="password"), methods(protocol.V3_51))

    assert who.answer(number(5) + bytes.fromhex("2a3d8fe0")) == (
        b"md562af4dd09bbb41884907a838a3233294\0"
    )


def test_an_sm3_proof_is_what_a_server_that_stored_it_accepts() -> None:
    answer = login().answer(challenge(number(10_000), code=13, stored=3))

    # The server's side: it knows the stored key, and recovers the client's from the proof.
    keys = Keys.derive(PASSWORD, bytes.fromhex(SALT), 10_000, _hash_sm3)
    assert answer is not None
    assert answer.endswith(b"\0")
    proof = bytes.fromhex(answer[:64].decode())
    signature = hmac.digest(keys.stored, bytes.fromhex(TOKEN), "sha256")
    recovered = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert _hash_sm3(recovered) == keys.stored


@pytest.mark.parametrize(
    ("message", "digest"),
    [  # GB/T 32905-2016, appendix A
        (b"abc", "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0"),
        (b"abcd" * 16, "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732"),
    ],
)
def test_sm3_follows_the_examples_of_the_standard(message: bytes, digest: str) -> None:
    assert _hash_sm3(message).hex() == digest


def test_where_openssl_has_no_sm3_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(_: object) -> None:
        raise UnsupportedAlgorithm("sm3 is not a supported hash on this backend")

    monkeypatch.setattr(hashes, "Hash", without)

    with pytest.raises(LoginRefused, match=r"by SM3.*wheel of PyPI.*sha256 in pg_hba\.conf"):
        login().answer(challenge(number(10_000), code=13, stored=3))


@pytest.mark.parametrize("rounds", [0, 1, 2047, 10_000_001, 134_217_728, 2**32 - 1])
@pytest.mark.parametrize(("code", "stored"), [(10, 2), (13, 3)])
def test_rounds_out_of_bounds_are_refused(rounds: int, code: int, stored: int) -> None:
    with pytest.raises(LoginRefused, match="rounds"):
        login().answer(challenge(number(rounds), code=code, stored=stored))


@pytest.mark.parametrize(
    "version", [protocol.V3_0, protocol.V3_50, protocol.V3_51], ids=["3.0", "3.50", "3.51"]
)
def test_the_request_must_have_the_shape_of_the_version(version: int) -> None:
    right = {protocol.V3_0: 64, protocol.V3_50: 0, protocol.V3_51: 4}[version]

    for size in {0, 1, 3, 4, 5, 63, 64, 65} - {right}:
        assert refused_or_broken(version, challenge(b"0" * size)) is DecodeError


@given(
    st.sampled_from([protocol.V3_0, protocol.V3_50, protocol.V3_51]),
    st.sampled_from([0, 3, 5, 10, 11, 13]),
    st.binary(max_size=200),
)
def test_any_request_is_answered_or_refused(version: int, code: int, body: bytes) -> None:
    with contextlib.suppress(LoginRefused, DecodeError):
        login(version).answer(number(code) + body)


def test_no_prefix_of_a_request_is_a_request() -> None:
    for whole in (
        challenge(number(10_000)),
        challenge(number(10_000), code=13, stored=3),
        number(10) + number(1) + b"salt",
        number(11) + SALT.encode() + b"salt",
    ):
        for size in range(len(whole)):
            if whole[:size] != number(0):
                with pytest.raises(DecodeError):
                    login().answer(whole[:size])


@pytest.mark.parametrize("salt", [b"zz" * 32, b"4d " * 21 + b"4", b"\xff" * 64])
def test_a_salt_that_is_not_hexadecimal_is_refused(salt: bytes) -> None:
    body = number(10) + number(2) + salt + TOKEN.encode() + number(2048)

    assert refused_or_broken(protocol.V3_51, body) is DecodeError


@pytest.mark.parametrize(("code", "stored"), [(10, 0), (10, 3), (10, 4), (10, 7), (13, 2)])
def test_ways_of_storing_we_do_not_know_are_refused_by_number(code: int, stored: int) -> None:
    with pytest.raises(LoginRefused, match=f"method={code}, stored={stored}.*sha256"):
        login().answer(challenge(number(2048), code=code, stored=stored))


@pytest.mark.parametrize("code", [7, 9, 12, 14, 99])
def test_other_methods_are_refused_with_openGauss_way_out(code: int) -> None:  # noqa: N802
    with pytest.raises(LoginRefused, match=f"method={code}.*use sha256 in pg_hba"):
        login().answer(number(code))


def test_a_clear_text_password_is_not_given_without_tls() -> None:
    with pytest.raises(LoginRefused, match="clear text"):
        login().answer(number(3))


def test_a_missing_password_is_reported_as_such() -> None:
    with pytest.raises(LoginRefused, match="none was given"):
        login(password=None).answer(challenge(number(2048)))
