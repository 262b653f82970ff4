"""The audit finds what must never be: each rule is broken once."""

import pytest

from gauss_cdc_lab.demo.audit import Audit, _accepted, _check, _claims

TOPIC = "bank.public.account"


def start(**changes):
    return head("START", n=1, last_seq=0, **changes)


def head(kind, *, n, last_seq, writer=1, instance="a", resume=10, epoch=1, **fields):
    return {
        "kind": kind,
        "n": n,
        "epoch": epoch,
        "writer": writer,
        "instance": instance,
        "last_seq": last_seq,
        "resume": resume,
        **fields,
    }


def commits(n, seqs, ranges, *, rows=1, **changes):
    """One record per commit, in the ranges' order."""
    entries = [
        {"seq": seq, "rows": rows, "counts": {"0": rows}, "ddl": changes.pop("ddl", [])}
        for seq in seqs
    ]
    said = [
        {"topic": topic, "partition": 0, "start": low, "end": high} for topic, low, high in ranges
    ]
    return head("COMMITS", n=n, last_seq=seqs[-1], commits=entries, ranges=said, **changes)


class Record:
    """What the check asks of a consumer's message."""

    def __init__(self, offset, position, topic=TOPIC):
        self._offset, self._position, self._topic = offset, position, topic

    def topic(self):
        return self._topic

    def partition(self):
        return 0

    def offset(self):
        return self._offset

    def headers(self):
        return [("xid", b"1"), ("position", self._position.encode())]


CUTS = [start(), commits(2, [1, 2], [(TOPIC, 0, 2)]), commits(3, [3], [(TOPIC, 3, 4)])]
RECORDS = [Record(0, "1/1/0"), Record(1, "1/2/0"), Record(3, "1/3/0")]


def audited(cuts, records, *, exactly_once=True):
    found = Audit()
    claims = _claims(found, _accepted(found, list(enumerate(cuts))))
    _check(found, claims, iter(records), None, exactly_once=exactly_once, every=1)
    return found


def test_cuts_and_topics_that_agree_are_no_problem():
    found = audited(CUTS, RECORDS)

    assert found.problems == []
    assert (found.commits, found.records, found.takeovers) == (3, 3, 1)


@pytest.mark.parametrize(
    ("records", "problem"),
    [
        (RECORDS[:2], "no reader sees it"),
        ([*RECORDS, Record(7, "1/3/0")], "stands in no cut"),
        ([RECORDS[0], Record(1, "1/3/0"), RECORDS[2]], "the cut says (1, 2)"),
        ([RECORDS[0], Record(1, "1/2/1"), RECORDS[2]], "of 1 rows are there"),
        ([RECORDS[0], Record(1, "2/2/0"), RECORDS[2]], "the cut says (1, 2)"),
    ],
)
def test_a_record_that_is_lost_added_or_misplaced_is_found(records, problem):
    assert problem in " ".join(audited(CUTS, records).problems)


def test_rows_of_failed_attempts_may_stand_outside_of_cuts_without_transactions():
    found = audited(CUTS, [*RECORDS, Record(2, "1/3/0")], exactly_once=False)

    assert found.problems == []
    assert found.uncovered == 1


@pytest.mark.parametrize(
    ("cut", "problem"),
    [
        (commits(5, [4], [(TOPIC, 4, 5)]), "n 5 after 3"),
        (commits(4, [5], [(TOPIC, 4, 5)]), "commits [5]… after 3"),
        (commits(4, [4], [(TOPIC, 3, 4)]), "named by commits (1, 3) and (1, 4)"),
        (commits(4, [4], [(TOPIC, 4, 6)]), "its counts do not fill its ranges"),
        (commits(4, [4], [(TOPIC, 4, 5)], resume=9), "resume went back"),
        (commits(4, [4], [(TOPIC, 4, 5)], instance="b"), "a writer that was overtaken"),
        (head("HEARTBEAT", n=4, last_seq=3), "HEARTBEAT has n 4, not 3"),
        (head("START", n=5, last_seq=3, writer=2), "START has n 5 after 3"),
        (head("START", n=4, last_seq=2, writer=2), "START knows seq 2, not 3"),
    ],
)
def test_a_cut_that_breaks_the_chain_is_found(cut, problem):
    assert problem in " ".join(audited([*CUTS, cut], RECORDS).problems)


def test_a_takeover_goes_on_where_the_chain_stood():
    taken = head("START", n=4, last_seq=3, writer=2, instance="b")
    more = commits(5, [4], [(TOPIC, 5, 6)], writer=2, instance="b")

    found = audited([*CUTS, taken, more], [*RECORDS, Record(5, "1/4/0")])

    assert found.problems == []
    assert found.takeovers == 2


def test_a_schema_change_stands_where_its_commit_says():
    ddl = "bank.ddl"
    cuts = [
        start(),
        commits(2, [1], [(ddl, 0, 1)], ddl=[{"ordinal": 0, "offset": 0}]),
        commits(3, [2], [(ddl, 1, 2)]),
    ]

    found = audited(cuts, [Record(0, "1/1/0", ddl), Record(1, "1/2/0", ddl)])

    assert found.problems == [f"('{ddl}', 0) 1: 1/2/0 is not the cut's DDL there"]
