"""Who may read a file that holds a secret."""

import os
from pathlib import Path

import pytest

from schemas.secret_file import exposed, exposed_of

ROOT, SOMEBODY = 0, 1000


def status(mode: int, owner: int) -> os.stat_result:
    return os.stat_result((0o100000 | mode, 0, 0, 1, owner, owner, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("mode", "owner", "is_fit"),
    [
        *((mode, owner, True) for mode in (0o600, 0o400, 0o700) for owner in (ROOT, SOMEBODY)),
        *((0o640, ROOT, True), (0o440, ROOT, True)),
        *((0o640, SOMEBODY, False), (0o440, SOMEBODY, False)),
        *((mode, owner, False) for mode in (0o644, 0o604, 0o660, 0o610) for owner in (0, 1000)),
    ],
)
def test_only_its_owner_reads_it_and_the_group_one_of_root_s(
    mode: int, owner: int, is_fit: bool
) -> None:
    said = exposed("/run/secret", status(mode, owner))

    assert (said == "") == is_fit
    assert is_fit or "chmod 600 /run/secret" in said


def test_a_client_s_files_are_found_by_their_settings(tmp_path: Path) -> None:
    secret, certificate = tmp_path / "key", tmp_path / "crt"
    for file in (secret, certificate):
        file.write_text("x")
        file.chmod(0o644)
    options = {
        "ssl.key.location": str(secret),
        "sasl.kerberos.keytab": str(secret),
        "ssl.keystore.location": str(tmp_path / "none"),  # whoever opens it says so
        "ssl.certificate.location": str(certificate),
    }

    assert [name for name, _ in exposed_of(options)] == ["ssl.key.location", "sasl.kerberos.keytab"]
    secret.chmod(0o600)
    assert list(exposed_of(options)) == []
