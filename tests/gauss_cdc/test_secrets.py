"""What is masked on stderr: known secrets in every spelling, and what looks like one."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gauss_cdc import secrets
from gauss_cdc.secrets import STARS, Masking, known, masked, option
from producer.secret_words import is_secret


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "_known", set())


@pytest.mark.parametrize(
    "name",
    [
        *("sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem"),
        *("sasl.oauthbearer.client.secret", "sasl.jaas.config", "basic.auth.user.info"),
        *("bearer.auth.token", "spark.ssl.keyPassword", "fs.azure.account.key", "api_key"),
        *("fs.s3a.access.key", "spark.hadoop.fs.s3a.secret.key", "spark.authenticate.secret"),
        *("javax.jdo.option.ConnectionPassword", "passphrase", "spark.ssl.trustStorePassword"),
        "sasl.oauthbearer.assertion.private.key.passphrase",
    ],
)
def test_a_setting_of_such_a_name_is_a_secret(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        *("ssl.ca.location", "ssl.key.location", "ssl.certificate.pem", "ssl.ca.pem"),
        *("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.id", "sasl.username"),
        *("ssl.keystore.location", "sasl.mechanism", "client.id", "key.serializer"),
        *("spark.kubernetes.driver.secrets.db", "spark.kafka.clusters.a.sasl.token.mechanism"),
        *("spark.jars", "spark.executor.memory", "spark.sql.shuffle.partitions"),
    ],
)
def test_what_only_says_where_or_of_what_kind_stands_in_the_file(name: str) -> None:
    assert option(name, "x") == "x"


@pytest.mark.parametrize("secret", ['qu"ote\\back;slash', "p@ss:w/ord&%", "ключ-💚", "it's one"])
def test_a_known_secret_is_masked_however_it_is_written(secret: str) -> None:
    import json
    from urllib.parse import quote

    known(secret)

    for text in (secret, json.dumps(secret), repr(secret), quote(secret), quote(secret, safe="")):
        assert masked(f"before {text} after").count(STARS) == 1
        assert masked(f"before {secret} after") == f"before {STARS} after"


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://me:pencil@db/bank failed",
        "Config: sasl.password=pencil, client.id=x",
        "{'ssl.key.password': 'pencil', 'a': 1}",
        '{"bearer.auth.token": "pencil"}',
        "-Djavax.net.ssl.keyStorePassword=pencil -Xmx1g",
        "host=db password='pencil' user=cdc",
        "host=db password='a pencil, sharp' user=cdc",
        '{"message": "login with password=\\"a pencil\\" failed", "token": "two pencil words"}',
        "-----BEGIN EC PRIVATE KEY-----\npencil\n-----END EC PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_secret_is_masked(text: str) -> None:
    out = io.StringIO()
    print(text, file=Masking(out))

    assert "pencil" not in out.getvalue()
    assert STARS in out.getvalue()


def test_a_sentence_about_a_secret_stays_readable() -> None:
    text = "bank.toml:10: kafka.client.sasl.password: the variable KP is not set"

    assert masked(text) == text


def test_a_line_of_json_stays_one() -> None:
    import json

    known('pen"cil\\9')
    line = json.dumps(
        {
            "message": 'login of cdc with password="a pencil" and pen"cil\\9 failed',
            "password": "pencil, sharp",
            "token": 'p"q',
            "n": 1,
        }
    )

    read = json.loads(masked(line))

    assert read["password"] == read["token"] == STARS
    assert read["n"] == 1
    assert "pencil" not in read["message"]
    assert "cil" not in read["message"]


def test_a_command_masks_its_tracebacks(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from gauss_cdc import cli\n"
        "from gauss_cdc.config import load\n"
        "from pathlib import Path\n"
        "def broken(**_):\n"
        "    load(Path(sys.argv[1]))\n"
        "    raise RuntimeError('login of cdc with pencil-7 failed')\n"
        "cli.cli = broken\n"
        "cli.main()\n"
    )
    file = tmp_path / "bank.toml"
    file.write_text(
        '[source]\ndsn = "postgresql://cdc@db/bank"\n[kafka]\nprefix = "bank"\n'
        '[kafka.client]\n"bootstrap.servers" = "k:9092"\n[registry]\nurl = "http://r:8081"\n'
    )

    done = subprocess.run(
        [sys.executable, "-c", program, str(file)],
        env={**os.environ, "GAUSS_CDC_SOURCE_PASSWORD": "pencil-7"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0
    assert "login of cdc with" in done.stderr
    assert "pencil-7" not in done.stderr


def test_a_password_in_a_command_is_refused() -> None:
    from click.testing import CliRunner

    from gauss_cdc.cli import cli

    done = CliRunner().invoke(cli, ["ddl", "show", "--dsn", "postgresql://postgres:pencil@db/bank"])

    assert done.exit_code == 2
    assert "GAUSS_CDC_SOURCE_PASSWORD" in done.output
    assert "pencil" not in done.output
