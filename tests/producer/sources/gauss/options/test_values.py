"""Option values, as PostgreSQL's own settings read them."""

import pytest

from producer.sources.gauss.options import values


# ---------------------------------------------------------------- booleans
@pytest.mark.parametrize("text", ["true", "TRUE", "t", "tr", "yes", "y", "on", "On", "1"])
def test_what_is_true(text: str) -> None:
    assert values.boolean(text) is True


@pytest.mark.parametrize("text", ["false", "F", "fal", "no", "n", "off", "of", "OFF", "0"])
def test_what_is_false(text: str) -> None:
    assert values.boolean(text) is False


@pytest.mark.parametrize("text", ["", "o", "maybe", "truex", "10", " true", "true ", "2", "-1"])
def test_what_is_no_boolean(text: str) -> None:
    with pytest.raises(ValueError, match="true or false"):
        values.boolean(text)


# ---------------------------------------------------------------- integers
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("4", 4),
        ("+4", 4),
        ("-1", -1),
        (" 20", 20),
        ("20\n", 20),
        ("0x10", 16),
        ("0XfF", 255),
        ("010", 8),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
    ],
)
def test_integers_as_strtol_reads_them(text: str, value: int) -> None:
    assert values.integer(text) == value


@pytest.mark.parametrize(
    "text", ["", " ", "4a", "4 4", "0x", "08", "1.5", "1e3", "2147483648", "4kB", "٤", "--4"]
)
def test_what_is_no_integer(text: str) -> None:
    with pytest.raises(ValueError, match="write a"):
        values.integer(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("30000", 30_000),
        ("0", 0),
        ("60s", 60_000),
        ("60 s", 60_000),
        ("2min", 120_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        ("500ms ", 500),
        ("0x1d", 29),  # not one day
    ],
)
def test_times_as_settings_read_them(text: str, value: int) -> None:
    assert values.milliseconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "60 seconds", "60S", "1.5s", "30d", "60 s s", "us"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="write"):
        values.milliseconds(text)


# ---------------------------------------------------------------- styles and lists
def test_a_style_is_its_first_character() -> None:
    assert [values.style(text) for text in ("j", "t", "b", "binary", "text")] == list("jtbbt")
    for text in ("", "x", "J", " b"):
        with pytest.raises(ValueError, match="j, t or b"):
            values.style(text)


def test_the_manuals_white_list() -> None:
    assert values.tables("public.t1,public.t2,*.t3,my_schema.*", blanks=False) == (
        ("public", "t1"),
        ("public", "t2"),
        ("*", "t3"),
        ("my_schema", "*"),
    )


def test_the_first_dot_splits_a_white_list_entry() -> None:
    assert values.tables("s.a.b", blanks=False) == (("s", "a.b"),)


def test_an_empty_white_list_is_no_filter() -> None:
    assert values.tables("", blanks=False) == ()
    assert values.tables("  ", blanks=True) == ()


def test_blanks_around_commas_are_for_opengauss_only() -> None:
    assert values.tables(" a.b , c.* ", blanks=True) == (("a", "b"), ("c", "*"))
    for text in (" a.b", "a.b ", "a.b, c.d", "  "):
        with pytest.raises(ValueError, match="not contain blanks"):
            values.tables(text, blanks=False)


@pytest.mark.parametrize("text", ["abc", "a.b,", ",a.b", "a.", ".b", "a.b,,c.d", "."])
def test_what_is_no_white_list(text: str) -> None:
    for blanks in (False, True):
        with pytest.raises(ValueError, match=r"schema\.table"):
            values.tables(text, blanks=blanks)


@pytest.mark.parametrize("text", ["a b.c", "a.b c", "a. b", "a .b"])
def test_no_blank_stands_inside_an_entry(text: str) -> None:
    with pytest.raises(ValueError, match="not contain blanks"):
        values.tables(text, blanks=True)


def test_lists_of_users() -> None:
    assert values.names("u1,u 2") == ("u1", "u 2")
    assert values.oids("10,4294967295") == (10, 4294967295)
    for text in ("", "a,", ",a"):
        with pytest.raises(ValueError, match="names"):
            values.names(text)
    for text in ("", "10,", "x", "-1", "4294967296", "1 2"):
        with pytest.raises(ValueError, match="OIDs"):
            values.oids(text)


def test_a_start_position_is_two_numbers_of_64_bits() -> None:
    assert values.csn_and_lsn("0/18446744073709551615") == (0, 2**64 - 1)
    for text in ("1", "1/", "1/2/3", "A/1", "1/18446744073709551616", "-1/2"):
        with pytest.raises(ValueError, match="write"):
            values.csn_and_lsn(text)
