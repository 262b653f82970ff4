from pathlib import Path

import pytest

from gauss_cdc.runtime import java
from gauss_cdc.runtime.errors import Unavailable


def test_a_java_home_that_is_none_is_said_and_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=rf"JAVA_HOME={tmp_path} does not start") as caught:
        java._find(str(tmp_path), "/usr/bin", tmp_path)

    assert "unset it" in str(caught.value)


def test_a_java_home_of_another_version_is_said_and_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    fake = tmp_path / "bin" / "java"
    fake.write_text(
        "#!/bin/sh\necho '    java.specification.version = 11' >&2\n"
        f"echo '    java.home = {tmp_path}' >&2\n"
    )
    fake.chmod(0o755)

    with pytest.raises(Unavailable, match="is Java 11; Kafka and Spark need Java 17 or 21"):
        java._find(str(tmp_path), "/usr/bin", tmp_path)
