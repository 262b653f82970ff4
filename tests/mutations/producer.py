"""Rules of the producer's half, taken out of the product's text."""

from __future__ import annotations

from typing import Final

from tests.mutations.table import Mutation

_SIM: Final = ("tests/sim/test_simulation.py",)
_TAKEOVER: Final = (
    "tests/producer/core/test_takeover.py",
    "tests/producer/core/test_takeover_loads.py",
    "tests/producer/core/test_promotion.py",
)
_BESIDE: Final = ("tests/producer/core/test_beside.py",)
_REREAD: Final = ("tests/producer/core/test_reread.py",)
_ASKED: Final = ("tests/integration/test_asked.py",)
_HISTORY: Final = ("tests/producer/core/test_history.py",)
_ENGINE: Final = ("tests/producer/core/test_engine.py",)
_DELIVERY: Final = ("tests/producer/kafka/test_delivery.py",)
_DDL: Final = ("tests/producer/core/test_ddl_log.py",)
_LOG: Final = ("tests/producer/core/test_cuts_log.py",)
_CSNS: Final = ("tests/producer/sources/gauss/test_csn_order.py",)
_STREAM: Final = ("tests/producer/sources/postgres/test_stream.py",)
_DEPARSED: Final = ("tests/producer/sources/gauss/ddl/test_deparsed.py",)
_CATALOG_WATCH: Final = ("tests/producer/core/test_catalog_watch.py",)
_STORAGE: Final = ("tests/integration/test_gauss_storage.py",)
_MADE_AGAIN: Final = ("tests/producer/core/test_made_again.py",)
_ASSEMBLE: Final = (
    "tests/producer/core/test_assemble.py",
    "tests/producer/core/test_transactions.py",
)

_AGAIN: Final = (
    "tests/producer/core/test_redelivery.py",
    "tests/producer/core/test_delivered.py",
)
_WAIT: Final = ("tests/gauss_cdc/inspect/test_history.py",)
_HAND_OVER: Final = ("tests/producer/native/test_hand_over.py",)

_BESIDE_FILE = "producer/core/beside.py"
_LOOP = "producer/core/loop.py"
_TRANSACTIONS_FILE = "producer/core/transactions.py"
_ENGINE_FILE = "producer/core/engine.py"
_TALLY_FILE = "producer/core/tally.py"
_TAKEOVER_FILE = "producer/core/takeover.py"
_COMPARISON_FILE = "producer/core/comparison.py"
_FENCED = (
    '    yield Step("fence", says=_FENCING)\n    log.init_transactions()\n'
    '    yield from _wait_for_lso(log, patience)\n    yield Step("compare again")\n'
)
_LOOKED = "    replay = log.tail()\n"
_DELIVERY_FILE = "producer/kafka/delivery.py"
_PROMOTION_FILE = "producer/core/promotion.py"

MUTATIONS: Final = (
    # ------------------------------------------------------------ loads beside the stream
    Mutation(
        "beside-unseen",
        "a snapshot shows all that was delivered before it was taken",
        _BESIDE_FILE,
        " and seen == delivered",
        "",
        _BESIDE,
    ),
    Mutation(
        "beside-running",
        "also what was delivered before the load began",
        _BESIDE_FILE,
        "return not self._running and ",
        "return ",
        _BESIDE,
    ),
    Mutation(
        "beside-deleted",
        "a row that the stream removed is left out of a range",
        _BESIDE_FILE,
        "self._note(self._key_of(old), None)",
        "pass",
        _BESIDE,
    ),
    Mutation(
        "beside-moved-away",
        "and one that has another key by now",
        _BESIDE_FILE,
        "self._note(was, None)",
        "pass",
        _BESIDE,
    ),
    Mutation(
        "beside-completed",
        "one that was updated in part is completed",
        _BESIDE_FILE,
        "completed.append(_over(row, sent))",
        "pass",
        _BESIDE,
    ),
    Mutation(
        "beside-early",
        "a range stands behind all that it shows",
        _BESIDE_FILE,
        "return first.read.high <= position",
        "return True",
        _BESIDE,
    ),
    Mutation(
        "beside-truncated",
        "what was read before a TRUNCATE is thrown away",
        _BESIDE_FILE,
        "if any(map(self._is_mine, relations)):",
        "if False:",
        _BESIDE,
    ),
    Mutation(
        "beside-shape",
        "rows have the shape that is in force where they stand",
        _BESIDE_FILE,
        "read.shape != known or",
        "",
        _BESIDE,
    ),
    Mutation(
        "beside-before-begin",
        "nothing is read before BEGIN stands",
        _BESIDE_FILE,
        "if not self.is_begun and self._flying:",
        "if False:",
        _BESIDE,
    ),
    Mutation(
        "beside-void",
        "what was asked for before a TRUNCATE is thrown away when it comes",
        _BESIDE_FILE,
        "        for one in self._flying:\n            one.is_void = True\n",
        "",
        _BESIDE,
    ),
    Mutation(
        "beside-holed",
        "a load with a gap does not go on where it was, whoever mends the gap",
        "producer/core/fates.py",
        'if phase == LoadPhase.CHUNK and ({table, "*"} & {*lacking})',
        "if False",
        ("tests/producer/core/test_fates.py",),
    ),
    # ------------------------------------------------------------ promotions
    Mutation(
        "tail-of-strangers",
        "records that do not count end no search for the lost tail [H44]",
        "schemas/accept.py",
        " or cut.head.n != n:",
        ":",
        _TAKEOVER,
    ),
    Mutation(
        "tail-by-newest",
        "all records behind the switch point are looked at",
        _PROMOTION_FILE,
        "if cut.head.resume <= position:",
        "if True:",
        _TAKEOVER,
    ),
    Mutation(
        "forced-unseen",
        "a server that tells no switches is asked what it lacks, before anything is fenced",
        _COMPARISON_FILE,
        "if how := source.lacks(replay.resume, xid):",
        "if how := '':",
        _TAKEOVER,
    ),
    Mutation(
        "replay-not-waited",
        "a point lies behind what the primary wrote: its replay is waited for [H46]",
        "producer/sources/postgres/primary.py",
        "while (at := catalog.log_end(self._reading)) < goal:",
        "while (at := goal) < goal:",
        _ASKED,
    ),
    Mutation(
        "csns-fall",
        "in the order of CSNs each transaction is above the one before it [H47]",
        "producer/sources/gauss/csn_order.py",
        "if csn <= passed.last_csn:",
        "if csn < 0:",
        _CSNS,
    ),
    Mutation(
        "csn-of-newest",
        "and the newest commit is confirmed once a later one was received",
        "producer/sources/gauss/csn_order.py",
        "if durable < newest:",
        "if durable <= newest:",
        _CSNS,
    ),
    Mutation(
        "history-asked-before",
        "a standby says behind a read, not before it, that its history is still the same [H45]",
        "producer/core/history.py",
        "        received = receive()\n        if received.messages or received.keepalive_end:\n"
        "            self.check()\n",
        "        self.check()\n        received = receive()\n",
        _HISTORY,
    ),
    Mutation(
        "history-of-idle",
        "a position of an idle standby counts as what it sends does [H45]",
        "producer/core/history.py",
        "if received.messages or received.keepalive_end:",
        "if received.messages:",
        _HISTORY,
    ),
    Mutation(
        "history-of-a-slot",
        "a slot that a standby makes is of the history of its START [H45]",
        "producer/core/history.py",
        "if (made := make()) is not None:",
        "if (made := make()) is None:",
        _HISTORY,
    ),
    Mutation(
        "answered-again",
        "a request that was answered is not taken again while a standby still shows it [H46]",
        "producer/sources/postgres/asked.py",
        "if n > self._is_answered_to(wish)}",
        "if n > 0}",
        _ASKED,
    ),
    Mutation(
        "asked-at-primary",
        "requests are read where points are made [H46]",
        "producer/sources/postgres/asked.py",
        "self._open.newest(QueryingConnection(self._reading), note)",
        "self._open.newest(QueryingConnection(self._primary.connection), note)",
        _ASKED,
    ),
    # ------------------------------------------------------------ windows
    Mutation(
        "window-unseen",
        "a window whose low mark was not sent is no point [H14]",
        "producer/core/window.py",
        "if self.low == UNKNOWN:\n                    self.left_out",
        "if False:\n                    self.left_out",
        _REREAD,
    ),
    # ------------------------------------------------------------ tables that are gone
    Mutation(
        "gone-not-kept",
        "after a crash the source goes on where a table was seen to be gone [H37]",
        "producer/core/reread.py",
        "replace(head, resume=max(head.resume, at))",
        "head",
        _REREAD,
    ),
    # ------------------------------------------------------------ the loop
    Mutation(
        "confirm-at-write",
        "nothing is confirmed before its cut is durable",
        _LOOP,
        "self._in_flight = cuts\n",
        "self._in_flight, self._confirmed = cuts, cuts[-1].head.resume\n",
        _SIM,
    ),
    Mutation(
        "status-tells-received",
        "a status message tells what is durable, not what was received",
        _LOOP,
        "self._source.wire.send_status(Lsn(confirmed))",
        "self._source.wire.send_status(Lsn(max(confirmed, self._at)))",
        _SIM,
    ),
    Mutation(
        "topics-forgotten",
        "topics stand in a STATE before a cut names them",
        _LOOP,
        "        while self._changed:  # before the rows",
        "        while False:  # before the rows",
        _SIM,
    ),
    Mutation(
        "rest-of-a-read-forgotten",
        "a read is taken to its end, in slices",
        _LOOP,
        "        if self._pending is None:\n            self._end_read",
        "        self._pending = None\n        if True:\n            self._end_read",
        _SIM,
    ),
    Mutation(
        "no-room-forgotten",
        "rows that found no room are sent later",
        _LOOP,
        "while (sent := delivery.send(records, sent)) < len(records):",
        "while (sent := delivery.send(records, sent)) < 0:",
        _SIM,
    ),
    Mutation(
        "own-not-judged",
        "a record of ours that readers do not accept is not confirmed",
        "producer/core/cuts_log.py",
        "            if self._replay.follow(offset, record) is None and offset >= since:\n",
        "            if self._replay.follow(offset, record) is None and False:\n",
        _LOG,
    ),
    Mutation(
        "strangers-not-read",
        "what stands between two records of ours is read before ours is confirmed",
        "producer/core/cuts_log.py",
        "        if offsets[0] != self._replayed_to:\n",
        "        if offsets[0] < self._replayed_to:\n",
        _LOG,
    ),
    Mutation(
        "gap-of-undecodable",
        "an undecodable message leaves a gap in its commit's entry",
        _LOOP,
        "                yield lsn, lost\n",
        "                pass\n",
        _SIM,
    ),
    Mutation(
        "undecodable-not-kept",
        "its bytes are in quarantine before its gap is in cuts",
        _LOOP,
        "self._blocking(self._quarantine.put, message.payload, lsn=lsn, why=message.why)",
        "pass",
        _SIM,
    ),
    # ------------------------------------------------------------ the engine
    Mutation(
        "idle-position-at-once",
        "an idle position is confirmed in a durable HEARTBEAT only",
        _ENGINE_FILE,
        "        cuts.append(Heartbeat(self._head(self._n, self._seq, resume)))\n",
        "        cuts.append(Heartbeat(self._head(self._n, self._seq, resume)))\n"
        "        out.append(Confirm(resume))\n",
        (*_ENGINE, *_SIM),
    ),
    Mutation(
        "busy-heartbeat",
        "an idle position counts only when nothing received is not durable",
        _ENGINE_FILE,
        "        if not self.is_idle or self._said_goodbye:\n",
        "        if self._phase is not Phase.SENDING or self._said_goodbye:\n",
        (*_ENGINE, *_SIM),
    ),
    Mutation(
        "cut-before-acknowledgements",
        "a cut waits for the acknowledgements of all rows that it names",
        _ENGINE_FILE,
        "        if self._phase is not Phase.FLUSHING or self._awaited:\n",
        "        if self._phase is not Phase.FLUSHING:\n",
        (*_ENGINE, *_SIM),
    ),
    Mutation(
        "no-offset",
        "an acknowledgement without an offset spoils its group",
        _TALLY_FILE,
        "            if start < 0:\n",
        "            if start < -9:\n",
        _ENGINE,
    ),
    Mutation(
        "ranges-from-first-to-last",
        "a gap in acknowledged offsets opens a range",
        _TALLY_FILE,
        "        if runs and runs[-1][1] == start:\n",
        "        if runs:\n",
        (*_ENGINE, *_SIM),
    ),
    Mutation(
        "topics-without-state",
        "topics that changed are written in a STATE",
        _ENGINE_FILE,
        "self._topics = dict(topics)\n                    self._state_due = True\n",
        "self._topics = dict(topics)\n",
        (*_ENGINE, *_SIM),
    ),
    Mutation(
        "half-a-transaction-in-a-group",
        "a group is made of whole source transactions",
        _ENGINE_FILE,
        "Phase.SENDING or self._tally.is_open or not self._tally.commits:\n",
        "Phase.SENDING or not self._tally.commits:\n",
        (*_ENGINE, *_SIM),
    ),
    # ------------------------------------------------------------ the assembler
    Mutation(
        "equal-is-dropped",
        "what begins before `resume` was delivered; what begins at it was not",
        "producer/core/transactions.py",
        "begin.commit_lsn < self.redelivery.resume",
        "begin.commit_lsn <= self.redelivery.resume",
        (*_ASSEMBLE, *_SIM),
    ),
    # ------------------------------------------------------------ what is sent again
    Mutation(
        "again-behind-the-walker",
        "the native walker takes nothing before all that was sent again was compared [H48]",
        "producer/core/transactions.py",
        "            self.redelivery.end()\n",
        "            pass\n",
        _ASSEMBLE,
    ),
    Mutation(
        "again-natively-passed",
        "it does not pass over the rows of a transaction that is not in cuts [H48]",
        "producer/core/assemble.py",
        "if self._walker is None or transactions.redelivery.is_unknown:",
        "if self._walker is None:",
        _HAND_OVER,
    ),
    Mutation(
        "again-at-another-time",
        "two transactions of one position and id differ by their time [H48]",
        "producer/core/redelivery.py",
        "            (known.committed_at, at, EPOCH_2000_US),\n",
        "",
        _AGAIN,
    ),
    Mutation(
        "again-of-the-lost-tail",
        "what an older timeline had behind the switch point is sent by nobody [H48]",
        "producer/core/delivered.py",
        " and (c.end_lsn or c.commit_start) <= upto",
        "",
        _AGAIN,
    ),
    Mutation(
        "again-up-to-the-switch",
        "and a record of it covers nothing behind",
        "producer/core/delivered.py",
        "yield DeliveredPart(min(cut.head.resume, upto)",
        "yield DeliveredPart(max(cut.head.resume, 0)",
        _AGAIN,
    ),
    Mutation(
        "again-of-a-gap",
        "a table with a gap may have left the publication: nothing of it is expected [H48]",
        "producer/core/delivered.py",
        " if name not in found.gaps}",
        "}",
        _AGAIN,
    ),
    Mutation(
        "again-by-an-older-slot",
        "an epoch's slot is not older than its load [H48]",
        "producer/core/delivered.py",
        "if cut.reason is not None and not cut.continues:",
        "if False:",
        _AGAIN,
    ),
    Mutation(
        "wait-behind-the-log",
        "`wait` holds nothing of a source that ends before the target [H48]",
        "gauss_cdc/inspect/history.py",
        " or now.end >= resume:",
        " or now.end >= 0:",
        _WAIT,
    ),
    Mutation(
        "wait-for-another-server",
        "nor of another server, or timeline [H48]",
        "gauss_cdc/inspect/history.py",
        "if (was.system_id, was.timeline) != (now.system_id, now.timeline):",
        "if False:",
        _WAIT,
    ),
    Mutation(
        "message-reaches-too-far",
        "a commit that begins where a message ends is not delivered with it",
        "producer/core/logical_messages.py",
        "            transactions.close_own(lsn)\n",
        "            transactions.close_own(lsn + 1)\n",
        _ASSEMBLE,
    ),
    # ------------------------------------------------------------ the native walker
    Mutation(
        "walker-keeps-the-ordinal",
        "the numbers of the open transaction are in one place, whoever writes its rows",
        _TRANSACTIONS_FILE,
        "        self._seq, self.ordinal = now.seq, now.ordinal\n",
        "        self._seq = now.seq\n",
        (*_HAND_OVER, *_SIM),
    ),
    Mutation(
        "walker-keeps-the-transaction",
        "a transaction that the walker opened is open",
        _TRANSACTIONS_FILE,
        "            self.open(Begin(Lsn(now.commit_lsn), now.committed_at, now.xid, now.csn))\n",
        "            pass\n",
        (*_HAND_OVER, *_SIM),
    ),
    Mutation(
        "walker-before-ours",
        "records stand in the order of their ordinals, whoever wrote them",
        _TRANSACTIONS_FILE,
        "        self.hand_over()\n        begin = self.begin\n",
        "        begin = self.begin\n",
        (*_HAND_OVER, *_SIM),
    ),
    Mutation(
        "walker-commits-ddl",
        "DDL and gaps are in the entry of their commit, whoever wrote its rows",
        _TRANSACTIONS_FILE,
        "is_plain=not (self._ddl or self._gaps),\n",
        "is_plain=True,\n",
        (*_HAND_OVER, *_SIM),
    ),
    Mutation(
        "walker-reaches-nothing",
        "an empty transaction moves the position",
        _TRANSACTIONS_FILE,
        "        if walk.position:\n",
        "        if walk.position < 0:\n",
        _HAND_OVER,
    ),
    Mutation(
        "walker-is-overlooked",
        "statements belong to the transaction that is open, whoever read its BEGIN",
        "producer/sources/postgres/stream.py",
        "                    self._overtaken(stretch)\n",
        "",
        _HAND_OVER,
    ),
    Mutation(
        "walker-overtakes-what-waits",
        "rows behind one that waits for its table wait, too",
        "producer/sources/postgres/stream.py",
        "            elif not waiting:\n                at = stretch.at\n",
        "            else:\n                at = stretch.at\n",
        _HAND_OVER,
    ),
    Mutation(
        "walker-has-an-old-shape",
        "rows behind a new shape are written with it",
        "producer/core/bindings.py",
        "        self.of.pop(relation, None)\n        if self._walker is not None:\n",
        "        self.of.pop(relation, None)\n        if self._walker is None:\n",
        _HAND_OVER,
    ),
    Mutation(
        "walker-has-a-narrow-shape",
        "rows behind a column that became nullable are written with it",
        "producer/core/bindings.py",
        "        self._bind(relation_id, binding)\n        self._transactions.use_schema",
        "        self.of[relation_id] = binding\n        self._transactions.use_schema",
        _HAND_OVER,
    ),
    Mutation(
        "walker-keeps-layouts",
        "rows are not read by a layout that is not true any more",
        "producer/sources/gauss/held.py",
        "            self._forget()\n            self._version",
        "            self._version",
        ("tests/producer/sources/gauss/test_held.py",),
    ),
    Mutation(
        "walker-is-not-buffered",
        "input waits while a group is being finished, whoever read it",
        _ENGINE_FILE,
        "                if self._phase is Phase.SENDING:\n",
        "                if self._phase is Phase.SENDING or type(happened) is Walked:\n",
        (*_ENGINE, *_SIM),
    ),
    Mutation(
        "walker-overtakes-a-loss",
        "what was lost between two transactions is a gap of the next one",
        _LOOP,
        "            if isinstance(message, Stretch) and self._lost_between is not None:\n",
        "            if isinstance(message, Stretch) and self._stopped is not None:\n",
        _SIM,
    ),
    # ------------------------------------------------------------ the sources
    Mutation(
        "statements-followed-again",
        "a statement that was delivered is not followed again: the tables known are later ones",
        "producer/sources/postgres/stream.py",
        "self._is_delivered = message.commit_lsn < self._resume",
        "self._is_delivered = False",
        _STREAM,
    ),
    Mutation(
        "deparsed-followed-again",
        "a statement that was delivered is not followed again: the tables known are later ones",
        "producer/sources/gauss/stream.py",
        "        if begin.commit_lsn < self._resume:  # delivered: the shapes are later ones\n"
        "            yield",
        "        if False:\n            yield",
        _DEPARSED,
    ),
    Mutation(
        "known-by-name",
        "a table of the catalog is the known one by its oid: another one may have its name",
        "producer/core/catalog_watch.py",
        "look.tables.get(table.oid) if table.oid else by_name.get(table.id)",
        "by_name.get(table.id)",
        _MADE_AGAIN,
    ),
    Mutation(
        "said-once",
        "what happens to a table again between two looks is a gap again",
        "producer/core/catalog_watch.py",
        "happened += self._since(",
        "found += self._since(",
        _CATALOG_WATCH,
    ),
    Mutation(
        "looked-not-noted",
        "a changed catalog is noted at once: `wait` compares with it [H49]",
        _ENGINE_FILE,
        "not looked.is_as(self._looked)",
        "False",
        _ENGINE,
    ),
    Mutation(
        "cleared-by-any-row",
        "only a row that was there at the look before clears a table of suspicion",
        "producer/sources/gauss/storage.py",
        " AND r.writer < {open_from:d} LIMIT 1",
        " LIMIT 1",
        _STORAGE,
    ),
    Mutation(
        "cleared-though-exchanged",
        "where partitions changed, rows of any age may have come from elsewhere",
        "producer/sources/gauss/storage.py",
        "(is_exchange or not self._is_cleared(",
        "(not self._is_cleared(",
        _STORAGE,
    ),
    Mutation(
        "older-rows-forgotten",
        "rows of a table from before it was published are missing, and its first row says so",
        "producer/core/relations.py",
        "            if not self._new_tables_are_complete:\n",
        "            if False:\n",
        _MADE_AGAIN,
    ),
    # ------------------------------------------------------------ start
    Mutation(
        "no-fence",
        "a takeover fences older selves before it reads the tail that counts",
        _TAKEOVER_FILE,
        _FENCED,
        _FENCED.replace("    log.init_transactions()\n", ""),
        _TAKEOVER,
    ),
    Mutation(
        "expired-is-forged",
        "what retention removed before a record of ours was not forged",
        "producer/core/cuts_log.py",
        "if refused is not None and self._reader.bounds()[0] > self._replayed_to:",
        "if False:",
        _LOG,
    ),
    Mutation(
        "epoch-of-a-stranger",
        "a new epoch is greater than that of any record, whatever the first one says [H42]",
        _TAKEOVER_FILE,
        "max(epoch, min(replay.greatest, request.newest_epoch))",
        "epoch",
        _TAKEOVER,
    ),
    Mutation(
        "slot-not-compared",
        "a slot that is ahead of the newest cut stops the start",
        _COMPARISON_FILE,
        "    if confirmed > (place := place_of(source, request, replay)):\n",
        "    if confirmed < (place := 0):\n",
        _TAKEOVER,
    ),
    Mutation(
        "topics-not-compared",
        "a topic that was made again stops the start",
        _COMPARISON_FILE,
        "        if there is None or there[0].id != topic.id:\n",
        "        if there is None:\n",
        _TAKEOVER,
    ),
    Mutation(
        "ends-not-compared",
        "a topic that ends before rows that a cut names stops the start",
        _COMPARISON_FILE,
        "        if high < end:\n",
        "        if high < 0:\n",
        _TAKEOVER,
    ),
    Mutation(
        "lost-tail-not-seen",
        "an epoch continues only if nothing behind the switch point was delivered",
        _COMPARISON_FILE,
        "    if lost.is_empty or request.accept_switch:\n",
        "    if True:\n",
        _TAKEOVER,
    ),
    Mutation(
        "resume-behind-the-switch-point",
        "an epoch that continues reads the new timeline from its beginning on",
        _COMPARISON_FILE,
        "min(replay.resume, at)",
        "replay.resume",
        _TAKEOVER,
    ),
    Mutation(
        "tail-before-the-fence",
        "nothing seen before the fence is used after it",
        _TAKEOVER_FILE,
        _FENCED + _LOOKED,
        _LOOKED + _FENCED,
        _TAKEOVER,
    ),
    Mutation(
        "unsettled-stops",
        "what differs stops a start only when everything is decided that could explain it",
        _TAKEOVER_FILE,
        "        if is_settled:\n            raise problem\n",
        "        if is_settled or tries >= 0:\n            raise problem\n",
        _TAKEOVER,
    ),
    Mutation(
        "epochs-of-shapes",
        "shapes of another epoch are not known",
        "producer/core/ddl_log.py",
        "if change.epoch != epoch:",
        "if False:",
        _DDL,
    ),
    Mutation(
        "shapes-beyond-the-cut",
        "shapes beyond the last accepted commit are not known",
        "producer/core/ddl_log.py",
        "if change.seq > seq:",
        "if False:",
        _DDL,
    ),
    # ------------------------------------------------------------ delivery
    Mutation(
        "an-id-per-process",
        "transactional.id is made of nothing but the prefix",
        _DELIVERY_FILE,
        '"transactional.id": transactional_id(prefix),',
        '"transactional.id": f"{transactional_id(prefix)}.{id(self)}",',
        _DELIVERY,
    ),
    Mutation(
        "commit-timeout-is-success",
        "a commit that timed out is asked for again",
        _DELIVERY_FILE,
        "            patience.see(0)\n        self._in_transaction = False\n",
        "            break\n        self._in_transaction = False\n",
        _DELIVERY,
    ),
)
