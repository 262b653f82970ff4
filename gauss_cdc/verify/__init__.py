"""`gauss-cdc verify`: source and target compared at one commit (docs/protocol.md, chapter 9).

Between the snapshots S and T are the commits that begin at S's place or later and end with the one
that T's ledger names.  They are read from a ledger that was seen earlier, whose last commit begins
before S's place.

    untouched key    has the same row in S and T: each difference is real
    touched key      T must hold the row of S with the changes in order
    rows, no key     a multiset: T must hold S, less the changes' old rows, with their new ones;
                     not decided without REPLICA IDENTITY FULL
    DDL, TRUNCATE,   another round, with other snapshots.  A table is locked (ACCESS SHARE) while it
    a load           is read, and the files of its rows must be those of the snapshot

SQL servers compare groups of rows by counts and sums of hashes (64 bits; of rows 128).  Where a
side is none, both hand over their rows (`streams`): the source's get the changes as they pass, and
each cell becomes the target's value by the table of types; a text in `_exact` is compared as such.
T is then the newest watermark; a version that no step made is read in place of the one that it
names, since others wrote it.
"""
