"""What people read while a command runs."""

from gauss_cdc import watch
from gauss_cdc.look import findings_table
from producer.preflight import Finding, Level


def test_brackets_are_no_markup() -> None:
    """`[ddl] apply` is a key, and `[/b]` may be a table's name."""
    with watch.console.capture() as said:
        watch.say("s.[/b] is not applied: [ddl] apply = tables")
        watch.console.print(findings_table([Finding(Level.ERROR, "[tables]", "[/b]", "")]))

    assert "s.[/b] is not applied: [ddl] apply = tables" in said.get()
    assert "[tables]" in said.get()
