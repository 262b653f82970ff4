"""The histories behind the rules of docs/protocol.md: what goes wrong without the rule.

`[H12]`, there and in code, is history 12.  Most of them are played: `mutations` takes a rule away,
and a checker sees what is told here.
"""

from typing import Final

HISTORIES: Final = {
    1: (
        "An idle keepalive is confirmed, then a crash: the slot is ahead of the last cut, and "
        "refused for ever."
    ),
    2: "A giant's part 1 is committed, then a crash: plain readers see part 1 twice.",
    3: "A range from least to greatest offset contains markers or a crashed attempt's rows.",
    4: "A gap that is a record of its own is lost by a crash between the two.",
    5: (
        "Another transactional id fences nobody: the new producer reads an older last cut and "
        "sends twice."
    ),
    6: "End − 1 is a marker: 'no cut found', everything starts from zero.",
    7: "An overtaken producer with another filter gives the same `seq` to other transactions.",
    8: (
        "The new producer fences before it owns the slot; the old one confirms a cut that "
        "everybody ignores."
    ),
    9: "Splitting at a DDL inside a transaction shows half a transaction.",
    10: (
        "The connection is lost behind COMMIT, and the ledger read as old; the COMMIT succeeds, "
        "and the retry applies it again."
    ),
    11: ("The target is restored, and the checkpoint is ahead: the cuts between never come again."),
    12: "A cut is visible before its data: markers arrive partition by partition.",
    13: "Segments that are cut differently after a crash are merged twice into a lake.",
    14: (
        "In a windowed re-read, a row deleted inside a gap survives; an unsent value keeps the "
        "gap's stale one."
    ),
    15: "A load that is started again leaves rows that were deleted in between.",
    16: "Positions of different kinds are compared.",
    17: (
        "An asynchronous standby without our last commit is promoted. The target keeps rows "
        "that never were, and new commits at passed positions are dropped."
    ),
    19: (
        "Inferred DDL comes twice, or is missed. A shape without a cut counts for another "
        "transaction: a table is wrongly hidden."
    ),
    20: (
        "CREATE TABLE AS decodes its rows before the event trigger's record: rows of an unknown "
        "relation wait for it."
    ),
    21: "Serial decoding of GaussDB sends the CSN at COMMIT only: headers would be guessed.",
    22: ("Parallel decoding of openGauss shows neither DDL nor TRUNCATE, so not such gaps either."),
    23: (
        "A cut above the message limit, or a group older than the timeout, fails again after "
        "each restart."
    ),
    24: "An abort follows a commit whose outcome is unknown.",
    25: "An unclean election, a deleted topic, a restored cluster.",
    26: "Data expired before it was read.",
    27: "Partitions are added under a running mapping of keys.",
    28: "`seq` alone does not show a lost TABLE or START record.",
    31: "Rows that a re-read replaces in a range are invisible to plain readers.",
    32: (
        "A cut is confirmed, its marker not yet in the topic, then a crash: the next producer "
        "sees an older tail, and the slot ahead of it."
    ),
    33: (
        "Of two first starts the second makes the slot again, whose START it did not see; "
        "commits between the two points are nowhere."
    ),
    34: (
        "A message between transactions counts as one position further: after a crash a commit "
        "that begins there is dropped."
    ),
    35: (
        "An overtaken applier writes a lake's table after the new one looked at it, or puts it "
        "back."
    ),
    36: "Old versions of a lake's tables are removed, and a watermark in use names one of them.",
    37: (
        "Rows of a hidden table before its point move no position. After a crash behind END "
        "they come again, though the snapshot had them; or the table is gone, and targets have "
        "its later rows alone."
    ),
    38: (
        "A table that is loaded again serves no rows, then a part of them; or its old rows as "
        "those of the ledger's commit."
    ),
    39: (
        "A change between BEGIN and END is applied to the rows that readers see: END takes it away."
    ),
    40: (
        "A promoted standby has the old primary's address. The stream's socket holds commits "
        "that a point there does not know."
    ),
    41: (
        "The `run` with the slot takes in a table, and ends before its load. A waiting one "
        "listed the tables before: it takes the table for complete."
    ),
    42: (
        "Somebody writes an old START again, and retention leaves it as the log's first one. "
        "Readers ignore the epoch that `--accept-gap` opens behind it."
    ),
    43: (
        "A reader goes on behind a STATE that does not name the topics made since START: one "
        "made again is not noticed, nor of which commit a table's rows are."
    ),
    44: (
        "Behind a lost tail somebody writes an old record again. The search from the end stops "
        "there."
    ),
    45: (
        "A standby that is read is promoted, and sends on. The next START takes commits behind "
        "the switch point for a lost tail, or the other way round."
    ),
    46: (
        "A table is published, or asked for, at the primary. A point at a standby that has not "
        "replayed it lacks its rows, or shows it before what was asked for."
    ),
    47: (
        "By CSN a transaction comes in two pieces. The first is confirmed, then a crash: the "
        "second is skipped."
    ),
    48: (
        "A source is restored from an older copy, and written past its old position. What it "
        "sends before `resume` is dropped; the target keeps commits that never were."
    ),
    49: (
        "A publication leaves out updates, and publishes them again before anybody looks: a "
        "target called exact lacks them. Or a look is noted, and a crash follows before what it "
        "found is in Kafka."
    ),
    50: (
        "An applier is stopped in a step, and its session keeps the ledger's lock. Another one "
        "waits as long; or it takes over, and the first one wakes and commits."
    ),
    51: (
        "A target that has a gap gets the name of another one whose load is open. It takes END, "
        "and calls the table exact."
    ),
    52: (
        "A transaction writes a row, and does not end. A label is renamed, which waits for no row. "
        "The table is read again, and has the new text. The transaction commits behind that, and "
        "brings the former one."
    ),
    53: (
        "Rows that differ at a target are read by their keys. A snapshot has no row of one; its "
        "INSERT is delivered before the record, which deletes the row."
    ),
    54: (
        "The transaction with the newest id is delivered, and not visible yet. No snapshot lists "
        "it as running: a load reads the table without it, and ends as exact."
    ),
}
