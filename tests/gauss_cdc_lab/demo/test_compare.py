"""Rows of two ordered streams are paired by key."""

from gauss_cdc_lab.demo.compare import _difference, _merged


def merged(left, right, width=1):
    return list(_merged(iter(left), iter(right), width))


def test_equal_keys_are_pairs_and_others_stand_alone():
    ours = [("1", "a"), ("2", "b"), ("4", "d")]
    theirs = [("1", "a"), ("3", "c"), ("4", "x")]

    assert merged(ours, theirs) == [
        (("1", "a"), ("1", "a")),
        (("2", "b"), None),
        (None, ("3", "c")),
        (("4", "d"), ("4", "x")),
    ]


def test_null_comes_last_and_is_not_the_empty_text():
    assert merged([("",), (None,)], [("",), ("z",), (None,)]) == [
        (("",), ("",)),
        (None, ("z",)),
        ((None,), (None,)),
    ]


def test_rows_without_a_key_are_counted():
    assert merged([("a",), ("a",)], [("a",)]) == [(("a",), ("a",)), (("a",), None)]


def test_order_is_by_bytes():
    assert merged([("B",), ("a",), ("é",)], [("B",), ("a",), ("é",)]) == [
        (("B",), ("B",)),
        (("a",), ("a",)),
        (("é",), ("é",)),
    ]


def test_a_difference_names_key_and_columns_and_no_values():
    ours, theirs = ("7", "7", "secret", "x"), ("7", "7", "other", "x")

    reported = _difference(ours, theirs, ["id"], ["id", "owner", "note"])

    assert reported == "id=7: owner differ"
    assert _difference(ours, None, ["id"], ["id", "owner", "note"]) == "id=7: only at the source"
