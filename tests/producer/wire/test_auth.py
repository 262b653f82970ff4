import base64
import functools
import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from producer.errors import DecodeError, LoginRefused
from producer.wire import auth
from producer.wire.auth import Credentials, Login, saslprep, server_end_point

NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
OFFER = b"SCRAM-SHA-256\0\0"


def request(code: int, body: bytes = b"") -> bytes:
    return code.to_bytes(4, "big") + body


def login(password: str | None = "pencil", **more: object) -> Login:
    return Login(Credentials(user="u", password=password, nonce=NONCE, **more))


def server_proof(password: str, client_first_bare: str, client_final: str) -> str:
    """What an honest server ends with."""
    salted = hashlib.pbkdf2_hmac(
        "sha256", password.encode(), base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096
    )
    signed = f"{client_first_bare},{SERVER_FIRST},{client_final.rpartition(',p=')[0]}".encode()
    key = hmac.digest(salted, b"Server Key", "sha256")
    return base64.b64encode(hmac.digest(key, signed, "sha256")).decode()


def test_scram_follows_the_example_of_rfc_7677() -> None:
    credentials = Credentials(user="user", password="pencil", nonce=NONCE)
    machine = auth._scram(credentials, "SCRAM-SHA-256", "n,,", b"", name="user")

    assert next(machine) == b"SCRAM-SHA-256\0\0\0\0\x20n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert machine.send((11, SERVER_FIRST.encode())) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert machine.send((12, b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")) is None
    with pytest.raises(StopIteration):
        machine.send((0, b""))


def test_a_whole_scram_login_ends_with_ok() -> None:
    who = login()
    first = who.answer(request(10, OFFER))
    assert first is not None
    final = who.answer(request(11, SERVER_FIRST.encode()))
    assert final is not None

    proof = server_proof("pencil", first.partition(b"n,,")[2].decode(), final.decode())
    assert who.answer(request(12, f"v={proof}".encode())) is None
    assert not who.done
    assert who.answer(request(0)) is None
    assert who.done


@pytest.mark.parametrize("final", ["v=AAAA", "e=other-error", "", "v="])
def test_a_server_that_cannot_prove_itself_is_refused(final: str) -> None:
    who = login()
    who.answer(request(10, OFFER))
    who.answer(request(11, SERVER_FIRST.encode()))

    with pytest.raises(LoginRefused, match="could not prove"):
        who.answer(request(12, final.encode()))


@pytest.mark.parametrize("steps", [0, 1])
def test_a_server_that_skips_its_proof_is_refused(steps: int) -> None:
    who = login()
    who.answer(request(10, OFFER))
    if steps:
        who.answer(request(11, SERVER_FIRST.encode()))

    with pytest.raises(LoginRefused, match="before proving"):
        who.answer(request(0))


@pytest.mark.parametrize(
    "challenge",
    [
        "r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        f"r={NONCE}x,s=,i=4096",
        f"r={NONCE}x,s=*,i=4096",
        f"r={NONCE}x,i=4096",
        "",
    ],
)
def test_a_malformed_challenge_is_refused(challenge: str) -> None:
    who = login()
    who.answer(request(10, OFFER))

    with pytest.raises(LoginRefused, match="malformed"):
        who.answer(request(11, challenge.encode()))


@pytest.mark.parametrize("rounds", ["1", "4095", "2000001", "99999999999999", "-4096", "x", "٤٠٩٦"])
def test_rounds_out_of_bounds_are_refused(rounds: str) -> None:
    who = login()
    who.answer(request(10, OFFER))

    with pytest.raises((LoginRefused, DecodeError)):
        who.answer(request(11, f"r={NONCE}x,s=AAAA,i={rounds}".encode()))


def test_md5_follows_a_known_vector() -> None:
    # From the tests of rust-postgres.
    who = Login(Credentials(user="md5_user", password="password"))

    assert who.answer(request(5, bytes.fromhex("2a3d8fe0"))) == (
        b"md562af4dd09bbb41884907a838a3233294\0"
    )
    assert who.answer(request(0)) is None
    assert who.done


def test_a_clear_text_password_is_given_only_when_encrypted() -> None:
    with pytest.raises(LoginRefused, match="clear text"):
        login().answer(request(3))
    assert login(encrypted=True).answer(request(3)) == b"pencil\0"


def test_a_server_that_asks_for_nothing_is_fine() -> None:
    who = login(password=None)

    assert who.answer(request(0)) is None
    assert who.done


def test_a_missing_password_is_reported_as_such() -> None:
    with pytest.raises(LoginRefused, match="none was given"):
        login(password=None).answer(request(5, b"salt"))


@pytest.mark.parametrize("code", [2, 7, 9, 11, 12, 99])
def test_other_methods_are_refused_by_number(code: int) -> None:
    with pytest.raises(LoginRefused, match=f"method={code}"):
        login().answer(request(code))


def test_a_request_after_the_last_one_is_an_error() -> None:
    who = login()
    who.answer(request(5, b"salt"))

    with pytest.raises(DecodeError):
        who.answer(request(5, b"salt"))


def test_mechanisms_we_do_not_speak_are_refused_by_name() -> None:
    with pytest.raises(LoginRefused, match="offered=OAUTHBEARER"):
        login().answer(request(10, b"OAUTHBEARER\0\0"))


def test_the_password_is_never_printed() -> None:
    shown = repr(Credentials(user="u", password="pencil", certificate=b"DER"))

    assert "pencil" not in shown
    assert "DER" not in shown


@functools.cache
def signer() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def certificate(signature: str = "2a864886f70d01010b", *, is_pss: bool = False) -> bytes:
    """A certificate whose signature says that it is of this algorithm."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "db.test")])
    hashing = hashes.SHA384() if is_pss else hashes.SHA256()
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(signer().public_key())
        .serial_number(1)
        .not_valid_before(datetime(2026, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2026, 1, 2, tzinfo=UTC))
        .sign(
            signer(),
            hashing,
            rsa_padding=padding.PSS(padding.MGF1(hashing), 48) if is_pss else None,
        )
    )
    der = made.public_bytes(serialization.Encoding.DER)
    return der.replace(bytes.fromhex("2a864886f70d01010b"), bytes.fromhex(signature))


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("2a864886f70d010104", "sha256"),  # MD5 and SHA-1 are too weak: RFC 5929 replaces them
        ("2a864886f70d010105", "sha256"),
        ("2a864886f70d01010b", "sha256"),
        ("2a864886f70d01010c", "sha384"),
        ("2a864886f70d01010d", "sha512"),
    ],
)
def test_channel_binding_hashes_by_the_certificates_own_signature(
    signature: str, name: str
) -> None:
    der = certificate(signature)

    assert server_end_point(der) == hashlib.new(name, der).digest()


def test_channel_binding_hashes_by_the_parameters_of_a_pss_signature() -> None:
    der = certificate(is_pss=True)

    assert server_end_point(der) == hashlib.sha384(der).digest()


# Made by `openssl req -x509 -newkey ed25519`: its signature names no hash.
ED25519 = base64.b64decode(
    "MIIBLjCB4aADAgECAhRFqueGckZkwT+4h6GSk2jkX8zM+jAFBgMrZXAwDTELMAkGA1UEAwwCZGIwHhcNMjYxMTI2MDQz"
    "NjQwWhcNMjYxMTI4MDQzNjQwWjANMQswCQYDVQQDDAJkYjAqMAUGAytlcAMhAMezK+Y/Qgi2fBZ+OoLK4nvHFch+502H"
    "EBSMIvZpQBuco1MwUTAdBgNVHQ4EFgQUo0h7DNhROlclEUDO7vM7KSaqTecwHwYDVR0jBBgwFoAUo0h7DNhROlclEUDO"
    "7vM7KSaqTecwDwYDVR0TAQH/BAUwAwEB/zAFBgMrZXADQQCaB7/oYR7IrlFIKRAK1eFgDyJ1bEoXfcE1VzmL4PKHeJYy"
    "3H8pEVkRQMNBffFPQpHrGPf2lBgMqEBZmcNZkrUP"
)


@pytest.mark.parametrize(
    "der",
    [
        *(b"", b"\x30", b"no certificate", ED25519, ED25519[:100]),
        certificate("2a864886f70d010177"),  # nobody's algorithm
        certificate().replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x09"),  # version 10
    ],
)
def test_a_certificate_without_a_known_hash_binds_nothing(der: bytes) -> None:
    assert server_end_point(der) == b""


def test_the_channel_is_bound_where_the_server_offers_it() -> None:
    der = certificate()
    who = login(encrypted=True, certificate=der)

    first = who.answer(request(10, b"SCRAM-SHA-256-PLUS\0" + OFFER))
    final = who.answer(request(11, SERVER_FIRST.encode()))

    assert first is not None
    assert final is not None
    assert first.startswith(b"SCRAM-SHA-256-PLUS\0")
    bound = base64.b64decode(final.partition(b",")[0].removeprefix(b"c="))
    assert bound == b"p=tls-server-end-point,," + hashlib.sha256(der).digest()


def test_a_server_can_see_that_its_offer_to_bind_was_taken_away() -> None:
    who = login(encrypted=True, certificate=certificate())

    first = who.answer(request(10, OFFER))

    assert first is not None
    assert b"y,,n=" in first


@pytest.mark.parametrize(
    ("given", "prepared"),
    [
        ("I\u00adX", "IX"),  # the examples of RFC 4013
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", "\u0007"),  # prohibited: PostgreSQL takes it as it is
        ("\u0627\u0031", "\u0627\u0031"),
        ("a\u00a0b", "a b"),
        ("\u0627a\u0627", "\u0627a\u0627"),
        ("\u0627\u0661\u0627", "\u0627\u0661\u0627"),
        ("", ""),
    ],
)
def test_passwords_are_prepared_as_rfc_4013_says(given: str, prepared: str) -> None:
    assert saslprep(given) == prepared


# ---- what the settings exclude


@pytest.mark.parametrize(
    ("methods", "asked"),
    [
        ({"scram-sha-256"}, request(3)),
        ({"scram-sha-256"}, request(5, b"salt")),
        ({"scram-sha-256"}, request(0)),
        ({"md5", "none"}, request(10, OFFER)),
    ],
)
def test_a_method_that_is_excluded_is_refused_before_anything_is_answered(
    methods: set[str], asked: bytes
) -> None:
    who = login(methods=frozenset(methods), encrypted=True)

    with pytest.raises(LoginRefused, match="require_auth"):
        who.answer(asked)

    assert not who.done


@pytest.mark.parametrize("asked", [request(0), request(5, b"salt"), request(10, OFFER)])
def test_a_login_that_must_be_bound_takes_nothing_less(asked: bytes) -> None:
    who = login(channel_binding="require", encrypted=True)

    with pytest.raises(LoginRefused, match="channel_binding"):
        who.answer(asked)

    assert not who.done


def test_no_binding_is_offered_where_it_is_disabled() -> None:
    who = login(channel_binding="disable", certificate=b"a certificate")

    first = who.answer(request(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"))

    assert first is not None
    assert first.startswith(b"SCRAM-SHA-256\0")
    assert b"n,,n=" in first
    assert who.method == "scram-sha-256"
