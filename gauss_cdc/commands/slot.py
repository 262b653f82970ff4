"""`slot`: create, show, advance and drop the replication slot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from gauss_cdc import wiring
from gauss_cdc.commands.base import INTERRUPTED, ExampleCommand, PositionType, configured, fail
from gauss_cdc.config import load
from gauss_cdc.inspect.look import slot_fields
from gauss_cdc.inspect.places import Endpoints, ReplicationStatus
from gauss_cdc.watch import StepName, StopSignal, console, say
from producer.core.ports import RunObserver
from producer.errors import SlotMissing, Unsupported
from producer.pipeline import create_slot
from producer.sources.gauss import slots as gauss_slots
from schemas.positions import NOWHERE, Lsn, lsn_text

# The server must end the session that creates a slot before the partial slot can be dropped.
_LEAVE_SECONDS: Final = 60.0


@click.group("slot")
def slot_group() -> None:
    """The replication slot."""


@slot_group.command("show", cls=ExampleCommand, example="gauss-cdc slot show")
@configured
def slot_show(config_path: Path) -> None:
    """Print the slot as JSON; exit code 13 if there is none."""
    config = load(config_path)
    with Endpoints(config) as places:
        found = ReplicationStatus(places.source().standing(), None, None).as_json()["source"]
    if found is None:
        name = config.source.slot
        fail(
            f"the source has no slot {name}: the first `gauss-cdc run` makes it; "
            "where there was one, `gauss-cdc check` says how to go on",
            SlotMissing.exit_code,
        )
    click.echo(json.dumps(found))


@slot_group.command("create", cls=ExampleCommand, example="gauss-cdc slot create")
@configured
def slot_create(config_path: Path) -> None:
    """Create the slot without a first load: older rows are not copied."""
    stop, step = StopSignal(limit=_LEAVE_SECONDS), StepName()
    options = wiring.producer_options(load(config_path), load=False)
    if not create_slot(options, RunObserver(step.set, lambda *_: None, say, stop.asked)):
        fail("stopped before the slot was created: nothing of it remains", INTERRUPTED)
    console.print("rows that existed before this moment are not copied")


@slot_group.command("list", cls=ExampleCommand, example="gauss-cdc slot list")
@configured
def slot_list(config_path: Path) -> None:
    """Print every slot of the source's server as JSON lines."""
    with Endpoints(load(config_path)) as places:
        for slot in gauss_slots.slots(places.source().session()):
            click.echo(json.dumps(slot_fields(slot)))


@slot_group.command("advance", cls=ExampleCommand, example="gauss-cdc slot advance")
@configured
@click.option(
    "--lsn",
    type=PositionType(),
    help="Up to the newest cut at or before it; default: the newest of all, which loses nothing.",
)
@click.option("--yes", is_flag=True, help="Yes, beyond the newest cut: changes will be lost to us.")
def slot_advance(config_path: Path, *, lsn: Lsn | None, yes: bool) -> None:
    """Let the server drop log that is in Kafka, while `run` is stopped."""
    config = load(config_path)
    with Endpoints(config) as places:
        session = places.source().session()
        slot = gauss_slots.check_usable(
            gauss_slots.find(session, config.source.slot),
            name=config.source.slot,
            plugin=config.source.output_plugin,
            database=config.source.connection().dbname,
        )
        if slot.ordered_by == "csn":
            raise Unsupported(
                "a slot in the order of CSNs is moved by its reader only", slot=slot.name
            )
        cuts = places.cuts()
        safe = cuts.resume if cuts is not None else NOWHERE
        goal = safe if lsn is None else lsn
        if cuts is not None and goal < safe:  # `run` goes on only from a record's place
            goal = places.ended_at(cuts, goal)
        if goal > safe and not yes:
            raise click.UsageError(
                f"the newest cut is at {lsn_text(safe)}: later changes would be lost; "
                "confirm with --yes"
            )
        if slot.confirmed is not None and slot.confirmed >= goal:
            reached = slot.confirmed
        else:
            reached = gauss_slots.advance(session, config.source.slot, goal)
    click.echo(lsn_text(reached))


@slot_group.command("drop", cls=ExampleCommand, example="gauss-cdc slot drop --yes")
@configured
@click.option("--yes", is_flag=True, help="Yes, changes since its position will be lost to us.")
def slot_drop(config_path: Path, *, yes: bool) -> None:
    """Drop the slot; the next run needs --accept-gap and loads again."""
    if not yes:
        raise click.UsageError("this loses the slot's position; confirm with --yes")
    config = load(config_path)
    with Endpoints(config) as places:
        gauss_slots.drop(places.source().session(), config.source.slot)
    console.print(f"slot {config.source.slot} dropped")
