"""Authorities and certificates of one test's own."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_NOW = dt.datetime.now(dt.UTC)
_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Certificate:
    """A certificate with its key, and who signed it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    def key_pem(self, password: str = "", *, pkcs1: bool = False) -> str:
        how = (
            serialization.BestAvailableEncryption(password.encode())
            if password
            else serialization.NoEncryption()
        )
        form = (
            serialization.PrivateFormat.TraditionalOpenSSL
            if pkcs1
            else serialization.PrivateFormat.PKCS8
        )
        return self.key.private_bytes(serialization.Encoding.PEM, form, how).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    def issue(self, common_name: str, *names: str, expired: bool = False) -> Certificate:
        """Sign a certificate for these names and addresses."""
        return _make(common_name, names, signer=self, expired=expired)

    def revoked(self, *certificates: Certificate) -> str:
        """A list of revoked certificates, as PEM."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(_NOW - _DAY)
            .next_update(_NOW + _DAY)
        )
        for one in certificates:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(one.certificate.serial_number)
                .revocation_date(_NOW - _DAY)
                .build()
            )
        made = builder.sign(self.key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()


def authority(common_name: str = "Test Authority") -> Certificate:
    """A self-signed authority."""
    return _make(common_name, (), signer=None)


def self_signed(common_name: str, *names: str) -> Certificate:
    """A server's certificate that nobody vouches for."""
    return _make(common_name, names, signer=None)


def written(path: Path, text: str, *, mode: int = 0o600) -> Path:
    """Write a file of these rights."""
    path.write_text(text)
    path.chmod(mode)
    return path


def _make(
    common_name: str,
    names: tuple[str, ...],
    *,
    signer: Certificate | None,
    expired: bool = False,
) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    ends = _NOW - _DAY if expired else _NOW + 10 * _DAY
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.certificate.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOW - 10 * _DAY)
        .not_valid_after(ends)
        .add_extension(
            x509.BasicConstraints(ca=signer is None and not names, path_length=None), critical=True
        )
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_name(name) for name in names]), critical=False
        )
    signing = signer.key if signer else key
    return Certificate(builder.sign(signing, hashes.SHA256()), key)


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
