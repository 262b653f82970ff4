"""The whole thing from end to end, watched: what `gauss-cdc demo` and `make chaos` run.

    services -> tables with rows -> load begins -> `run` and `apply` start
    first load ends (the ledger says EXACT) -> samples, kills
    load ends -> target reaches the source's last commit -> compare, audit

Whatever happens, an exception and Ctrl-C included, nothing is left running; the
folder is removed unless something failed or it is to be kept.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psycopg2
from rich.console import Console

from gauss_cdc.inspect.places import Endpoints
from gauss_cdc_lab.demo import scene
from gauss_cdc_lab.demo.audit import audit
from gauss_cdc_lab.demo.bank import Bank
from gauss_cdc_lab.demo.compare import compare
from gauss_cdc_lab.demo.disguise import Disguise, Kind
from gauss_cdc_lab.demo.killer import Kill, Killer, by_step
from gauss_cdc_lab.demo.lake import LakeSampler, compare_lake, writes
from gauss_cdc_lab.demo.load import Load, Workload
from gauss_cdc_lab.demo.programs import OURS, Program
from gauss_cdc_lab.demo.report import Report, quantile
from gauss_cdc_lab.demo.sampler import Sampler
from gauss_cdc_lab.demo.scene import CutsFollower, Interrupted, Interrupts, Scene
from gauss_cdc_lab.demo.tpcb import Tpcb
from gauss_cdc_lab.demo.view import DemoState, View
from gauss_cdc_lab.services import LocalServices

# Transactions a second that a target follows while it is killed, on two cores.
RATES: Final = {"delta": 100.0, "iceberg": 100.0}
WORKLOADS: Final[dict[str, Callable[[], Workload]]] = {"bank": Bank, "tpcb": Tpcb}

_LOOK_SECONDS: Final = 0.25
_STILL_LIMIT: Final = 240.0  # seconds in which nothing moves; the first load moves by its end
_LAKE_PATIENCE: Final = 4  # each table of a step costs a lake seconds
_ROUND: Final = 40.0  # seconds in which each event comes once
_LAKE_ROUND: Final = 80.0
_LAKE_LAG: Final = 2_000  # commits that wait for a lake; with more, the load is slow


class PlayFailed(Exception):
    """Something ended that should not have, or did not come in time."""


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What is played."""

    workload: str = "bank"
    seconds: float = 40.0  # of load, from the end of the first load on; kills may take longer
    kills: int = 5
    seed: int = 1
    workers: int = 6
    rate: float = 300.0  # transactions a second, of all sessions
    kills_in_load: bool = False  # also kill `run` and `apply` in the middle of the first load
    exactly_once: bool = True
    keep: Path | None = None
    source: Kind = "postgres"  # else PostgreSQL in disguise, and `run` reads what it says
    target: str = "postgres"  # or delta, iceberg
    mode: str = "scd1"  # of a lake: log, scd1 or scd2
    commits_again: int = 0  # of a lake: commits at which the end asks once more
    older: Path | None = None  # the tree of a release of which both are at first
    upgrades: tuple[str, ...] = ("apply", "run")  # their order, under load


def demo(plan: DemoPlan, console: Console) -> Report:
    """Start services of our own, play, clear everything away."""
    folder = plan.keep.absolute() if plan.keep is not None else scene.open_folder()
    folder.mkdir(parents=True, exist_ok=True)
    is_kept = plan.keep is not None
    with Interrupts() as interrupts:
        services = LocalServices(folder, console=console)
        disguise: Disguise | None = None
        try:
            with View(console) as view:
                view.say("starting PostgreSQL, Kafka and a schema registry")
                source, target = scene.make_databases(services.start())
                if plan.source != "postgres":
                    view.say(f"putting PostgreSQL in the disguise of {plan.source}")
                    disguise = Disguise(plan.source, folder, source)
                    with interrupts.held():
                        disguise.start()
                place = scene.set_up(
                    services,
                    folder,
                    source=source,
                    target=target,
                    exactly_once=plan.exactly_once,
                    disguise=disguise,
                    target_kind=plan.target,
                    mode=plan.mode,
                )
                report = play(plan, place, view, interrupts)
            is_kept = is_kept or not report.is_equal
        except Interrupted:
            console.print("interrupted: stopping everything")
            raise
        except Exception:
            is_kept = True
            raise
        finally:
            interrupts.end()
            if disguise is not None:
                disguise.stop()
            services.stop()
            if is_kept:
                console.print(f"everything is kept in {folder}", highlight=False)
            else:
                services.remove()
                shutil.rmtree(folder, ignore_errors=True)
    report.show(console)
    return report


def play(plan: DemoPlan, place: Scene, view: View, interrupts: Interrupts | None = None) -> Report:
    """Play on services that run; leave nothing of ours running."""
    interrupts = interrupts or Interrupts()
    with ExitStack() as stack:
        stack.callback(interrupts.end)
        return _Play(plan, place, view, interrupts, stack).run()


class _Stillness:
    """For how long something is as it was."""

    def __init__(self, look: Callable[[], object]) -> None:
        self._look, self._was, self._since = look, look(), time.monotonic()

    def seconds(self) -> float:
        """Look, and say it."""
        if (now := self._look()) != self._was:
            self._was, self._since = now, time.monotonic()
        return time.monotonic() - self._since


class _Play:
    def __init__(
        self, plan: DemoPlan, place: Scene, view: View, interrupts: Interrupts, stack: ExitStack
    ) -> None:
        self._plan, self._place, self._view = plan, place, view
        self._interrupts, self._stack = interrupts, stack
        self._began = time.monotonic()
        self._config = place.config
        # Parallel decoding loses rows behind DDL of the same transaction (manual, constraints).
        is_alone = plan.source != "postgres"
        self._workload: Workload = (
            # Each schema change is a step of a lake, and costs seconds.
            Bank(is_ddl_alone=is_alone, ddl_turns=1 if place.is_lake else 1 << 30)
            if plan.workload == "bank"
            else WORKLOADS[plan.workload]()
        )
        self._report = Report(plan.workload, plan.seed)
        self._programs = [
            Program(name, place.config_file, folder=place.folder, tree=plan.older or OURS)
            for name in ("run", "apply")
        ]
        sampler = partial(LakeSampler, place.target_kind, place.mode)
        self._sampler: Sampler = (sampler if place.is_lake else Sampler)(
            place.target_url, self._config.kafka.prefix, self._workload
        )
        self._limit = _STILL_LIMIT * (_LAKE_PATIENCE if place.is_lake else 1)
        self._follower = CutsFollower(self._config)
        self._load = Load(
            place.source_url,
            self._workload,
            seed=plan.seed,
            workers=plan.workers,
            rate=plan.rate,
            on_event=lambda name: view.say(f"at the source: {name}"),
            is_enough=self._is_enough,
            # A lake's first load takes longer than a round; columns shall change under kills.
            is_early=lambda: place.is_lake and not self._sampler.is_exact,
            round_seconds=_LAKE_ROUND if place.is_lake else _ROUND,
        )
        self._killer: Killer | None = None
        self._early: list[Kill] = []  # kills in the first load, and around upgrades
        self._stage = ""

    def run(self) -> Report:
        """All scenes."""
        report = self._report
        self._prepare()
        self._start()
        if self._plan.kills_in_load:
            self._kill_in_load()
        self._until(lambda: self._sampler.is_exact, "first load")
        self._view.say("the first load has ended: from here on every sample counts")
        began = time.monotonic()
        self._play_kills()
        self._load.stop()
        report.load_seconds = time.monotonic() - began
        self._settle()
        self._compare()
        report.seconds = time.monotonic() - self._began
        report.is_complete = True
        return report

    def _is_enough(self) -> bool:
        """Say whether a lake is far behind: each step of it costs seconds, whatever the machine."""
        lag = self._follower.seq - self._sampler.seen.seq
        return self._place.is_lake and lag > _LAKE_LAG

    # ------------------------------------------------------------ scenes
    def _prepare(self) -> None:
        self._view.say(f"making the tables of workload '{self._workload.name}', with rows in them")
        with closing(psycopg2.connect(self._place.source_url)) as connection:
            with connection.cursor() as cursor:
                self._workload.create(cursor)
            connection.commit()

    def _start(self) -> None:
        on_exit = self._stack.callback
        for program in self._programs:
            on_exit(program.close)
        on_exit(self._follower.stop)
        on_exit(self._sampler.stop)
        on_exit(self._load.stop)
        self._load.start()
        self._view.say("starting `gauss-cdc run` and `gauss-cdc apply`, under load")
        for program in self._programs:
            with self._interrupts.held():
                program.start()
        self._sampler.start()
        self._follower.start()

    def _kill_in_load(self) -> None:
        """Both die once before the first load has ended; no sample is taken yet."""
        for program, step in zip(self._programs, ("load: ", "ledger moved"), strict=True):
            self._until(partial(self._is_in, program, step), "first load", pause=0.001)
            kill = Kill(0, program.name, program.kill(), 0.0, 0)
            self._early.append(kill)
            self._view.say(f"{kill}, in the first load", style="yellow")
            with self._interrupts.held():
                program.start()

    @staticmethod
    def _is_in(program: Program, step: str) -> bool:
        return program.step().startswith(step)

    def _upgrade(self) -> None:
        """Each leaves, and is of this release from then on; between them both die once."""
        if self._plan.older is None:
            return
        programs = {program.name: program for program in self._programs}
        for name in self._plan.upgrades:
            self._pass_by("both work")
            program = programs[name]
            with self._interrupts.held():
                if not program.stop():
                    self._report.differences.append(f"{name} did not leave when asked")
                program.tree = OURS
                program.start()
            self._view.say(f"`{name}` is of this release from here on", style="yellow")
            self._pass_by("both work after an upgrade")
            for killed in self._programs:
                with self._interrupts.held():
                    kill = Kill(0, killed.name, killed.kill(), 0.0, 0)
                    killed.start()
                self._early.append(kill)
                self._view.say(str(kill), style="yellow")
                self._pass_by("both work after a kill")

    def _pass_by(self, stage: str) -> None:
        """Wait until the target is behind what is committed by now, and half a second's more."""
        end = self._follower.seq + max(1, round(self._plan.rate / 2))
        self._until(lambda: self._sampler.seen.seq > end, stage)

    def _play_kills(self) -> None:
        plan, report, seen = self._plan, self._report, self._sampler.seen
        before = self._load.counts
        self._upgrade()
        killer = self._killer = Killer(
            self._place.services,
            self._programs,
            kills=plan.kills,
            seconds=plan.seconds,
            seed=plan.seed,
            samples=lambda: seen.samples,
            on_kill=self._tell_kill,
            on_return=self._tell_return,
            writes=partial(writes, self._place.target_url) if self._place.is_lake else None,
        )
        self._stack.callback(killer.stop)
        killer.start()
        end = time.monotonic() + plan.seconds
        self._until(lambda: time.monotonic() > end and killer.is_done, "load and kills")
        counts = self._load.counts
        report.commits = counts.commits - before.commits
        report.rows = counts.rows - before.rows
        report.rollbacks = counts.rollbacks - before.rollbacks
        report.again = counts.again - before.again
        kills = [*self._early, *killer.deaths.kills]
        report.kills, report.kills_by_step = [str(kill) for kill in kills], by_step(kills)
        lags = self._sampler.seen.lags
        self._sampler.is_lag_measured = False
        report.lag_p50, report.lag_p99 = quantile(lags, 0.5), quantile(lags, 0.99)
        report.lag_max = max(lags, default=0.0)
        report.standstill_max = self._sampler.seen.standstill

    def _settle(self) -> None:
        """Wait until the target stands where the source ended; then let both leave."""
        self._stage = "catching up"
        began = time.monotonic()
        still = _Stillness(self._moved)
        with Endpoints(self._config) as places:
            end = places.source().log_end()

            def pause(seconds: float) -> bool:
                self._look()
                time.sleep(seconds)
                return still.seconds() > self._limit

            # Behind the emulator PostgreSQL has no publication, and another product's catalog.
            standing = places.wait(
                end, pause, lambda _: None, compares=self._plan.source == "postgres"
            )
            if standing is not None:
                self._until(lambda: _is_exact(places), "tables with gaps are read again")
        if standing is None:
            raise PlayFailed(
                f"the target stands before the source's end since {self._limit:.0f} s\n"
                + self._last_words()
            )
        report = self._report
        report.catch_up_seconds = time.monotonic() - began
        assert standing.cuts is not None
        report.seq, report.epochs = standing.cuts.seq, standing.cuts.epoch
        self._view.say(
            f"the target holds commit {standing.cuts.epoch}/{standing.cuts.seq}, the source's last"
        )
        for program in self._programs:
            if not program.stop():
                report.differences.append(f"{program.name} did not leave when asked")
        self._sampler.stop()
        if isinstance(self._sampler, LakeSampler) and self._plan.commits_again:
            asked, times = self._sampler.ask_again(self._plan.commits_again)
            report.asked_again = asked
            self._view.say(f"asked again at {asked} commits, by {times} questions")
        self._check_sampler()

    def _compare(self) -> None:
        report, view = self._report, self._view
        view.say("comparing every row of every table")
        if self._place.is_lake:
            compared = compare_lake(
                self._place.source_url, self._place.target_url, self._place.target_kind,
                self._place.mode, self._config.kafka.prefix,
            )  # fmt: skip
        else:
            compared = compare(self._place.source_url, self._place.target_url)
        report.table_rows = compared.rows
        report.differences += compared.differences
        view.say("comparing the cuts with the topics, offset by offset")
        found = audit(
            self._config.kafka.client,
            self._config.registry.url,
            self._config.kafka.prefix,
            exactly_once=self._plan.exactly_once,
        )
        report.records, report.cuts, report.takeovers = found.records, found.cuts, found.takeovers
        report.differences += found.problems
        if found.commits != report.seq and report.epochs == 1:
            report.differences.append(f"{found.commits} commits in cuts, the last is {report.seq}")
        for text in report.differences:
            view.say(text, style="red")

    # ------------------------------------------------------------ watching
    def _until(
        self, is_over: Callable[[], bool], stage: str, *, pause: float = _LOOK_SECONDS
    ) -> None:
        self._stage = stage
        still = _Stillness(self._moved)
        while not is_over():
            self._look()
            if still.seconds() > self._limit:
                raise PlayFailed(
                    f"{stage}: nothing moved for {self._limit:.0f} s\n" + self._last_words()
                )
            time.sleep(pause)

    def _moved(self) -> object:
        """What moves while a play goes on, however slow the machine is."""
        seen = self._sampler.seen
        return seen.epoch, seen.seq, len(self._killer.deaths.kills) if self._killer else 0

    def _look(self) -> None:
        """Show where everything is, and end where something broke."""
        seen, counts = self._sampler.seen, self._load.counts
        deaths = self._killer.deaths if self._killer is not None else None
        self._view.show(
            DemoState(
                self._stage,
                counts.commits,
                counts.rows,
                self._follower.seq,
                seen.seq,
                self._sampler.lag,
                seen.samples,
                len(seen.broken),
                len(deaths.kills) if deaths is not None else 0,
                self._plan.kills,
                *(program.step() for program in self._programs),
            )
        )
        for program in self._programs:
            if program.died():
                raise PlayFailed(f"`gauss-cdc {program.name}` ended:\n{program.last_words()}")
        for what, failure in (
            ("load", self._load.failure),
            ("sampler", self._sampler.failure),
            ("killer", deaths.failure if deaths is not None else None),
        ):
            if failure is not None:
                raise PlayFailed(f"the {what} failed: {failure}") from failure
        if seen.broken:
            raise PlayFailed(str(seen.broken[0]))

    def _check_sampler(self) -> None:
        report, seen = self._report, self._sampler.seen
        report.samples, report.sampled = seen.samples, len(seen.commits)
        report.not_exact = seen.not_exact
        report.differences += [str(broken) for broken in seen.broken]
        if not seen.samples:
            report.differences.append("the target was never sampled")
        at = 0
        kills = self._killer.deaths.kills if self._killer is not None else []
        for samples in [*(kill.samples for kill in kills), seen.samples]:
            report.samples_between.append(samples - at)
            at = samples

    def _tell_kill(self, kill: Kill) -> None:
        self._view.say(f"{kill.number}. {kill}", style="yellow")

    def _tell_return(self, kill: Kill, seconds: float) -> None:
        if kill.victim == "broker":
            self._view.say(f"the broker answers again, {seconds:.1f} s after its death")

    def _last_words(self) -> str:
        return "\n".join(
            f"--- {program.name}, in step '{program.step()}':\n{program.last_words()}"
            for program in self._programs
        )


def _is_exact(places: Endpoints) -> bool:
    """Say whether no table of the target is marked: one that has a gap is read again."""
    return (target := places.target()) is not None and not target.inexact
