"""Who makes the rows: the native module, or Python."""

from producer import native
from producer.native import MODULE
from producer.wire import replication


def test_it_can_be_switched_off() -> None:
    assert native.parts("off") is None
    assert native.split("off") is replication.split
    assert native.described("off") == 'pure Python ([kafka] native = "off")'


def test_it_is_used_where_it_is_built() -> None:
    if MODULE is None:
        assert native.split("auto") is replication.split
        assert native.described("auto").startswith("pure Python (")
    else:
        assert native.split("auto") is MODULE.split
        assert native.described("auto") == "the native module"
