"""Whether the native module is here, and who makes the rows."""

import shutil
import sysconfig

from producer import native
from producer.native import MODULE
from producer.wire import replication


def test_the_module_is_built_where_a_compiler_is() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]

    assert MODULE is not None or shutil.which(compiler) is None, "`make venv` builds it"


def test_it_can_be_switched_off() -> None:
    assert native.parts("off") is None
    assert native.split("off") is replication.split
    assert native.described("off") == 'pure Python ([kafka] native = "off")'


def test_it_is_used_where_it_is_built() -> None:
    if MODULE is None:
        assert native.split("auto") is replication.split
        assert "no C compiler" in native.described("auto")
    else:
        assert native.split("auto") is MODULE.split
        assert native.described("auto") == "the native module"
