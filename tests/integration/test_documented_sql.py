"""Every SQL statement of the documents, run in order as a superuser pastes it; all is undone."""

import re
import textwrap
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from gauss_cdc_lab.reference import ROOT, documents

_BLOCK = re.compile(r"^( *)```sql\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_MADE = re.compile(r"CREATE (?:ROLE|USER|SCHEMA)( IF NOT EXISTS)? (\w+)")
DOCUMENTS = [path for path in documents() if _BLOCK.search(path.read_text("utf-8"))]
# What a user has already.
THERE = """
CREATE ROLE bank_owner; CREATE TABLE public.account (id int PRIMARY KEY);
CREATE TABLE public.transfer (id int PRIMARY KEY)
"""


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_statement_is_taken_by_a_server(path: Path, postgres_url: str) -> None:
    made: set[str] = set()
    with closing(psycopg2.connect(postgres_url)) as admin, admin.cursor() as cursor:
        database = admin.info.dbname
        cursor.execute(THERE)
        for _, block in _BLOCK.findall(path.read_text("utf-8")):
            text = re.sub(r"ON DATABASE \w+", f'ON DATABASE "{database}"', textwrap.dedent(block))
            found = _MADE.findall(text)
            if made & {name for may_be_there, name in found if not may_be_there}:
                # The other database's, or the other product's.
                admin.rollback()
                cursor.execute(THERE)
                made = set()
            cursor.execute(text)
            made |= {name for _, name in found}
        admin.rollback()
