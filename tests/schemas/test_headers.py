from schemas.headers import row_headers, transaction_headers
from schemas.positions import CommitKey


def test_a_row_says_where_it_stands() -> None:
    headers = row_headers(transaction_headers(700, 99, "ann"), 0x20, CommitKey(2, 5001, 1))
    assert headers == [
        ("xid", b"700"),
        ("csn", b"99"),
        ("user", b"ann"),
        ("lsn", b"0/20"),
        ("position", b"2/5001/1"),
    ]


def test_rows_do_not_change_what_their_transaction_shares() -> None:
    shared = transaction_headers(700, 99)
    row_headers(shared, 1, CommitKey(1, 1, 0))
    assert shared == [("xid", b"700"), ("csn", b"99")]
