"""The page, in a headless browser, over programs that run: what a person sees, and may do.

Pictures of each state are in the folder that GAUSS_CDC_PICTURES names, for who looks at them.
"""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path as Folder
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests import browser as browsers
from tests.e2e.path import ask, pause, until
from tests.e2e.test_serve import PLANTED, TOKEN, Served, place

__all__ = ["place"]

HOSTILE = "<img src=x onerror=alert(1)>"
MADE = f"""
CREATE TABLE "{HOSTILE}" (id int PRIMARY KEY, v text);
CREATE TABLE "'; DROP TABLE one; --" (id int PRIMARY KEY, v text);
"""
WIDTHS = (360, 1280)
LONG = 60_000  # milliseconds: Spark starts meanwhile


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsers.chromium() as found:
        if found is None:
            pytest.skip("no Chromium: npm or its registry cannot be had")
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    found = browsers.axe()
    if found is None:
        pytest.skip("no axe-core: npm or its registry cannot be had")
    return found.read_text()


class Looked:
    """One browser's window on the page; whatever its console says is an error."""

    def __init__(self, browser: Browser, url: str, width: int, scheme: Any, axe: str) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800},
            color_scheme=scheme,
            http_credentials={"username": "any", "password": TOKEN},
            locale="en-US",
        )
        self.page: Page = self.context.new_page()
        self.name, self.axe, self.said = f"{width}-{scheme}", axe, []
        self.page.on("console", lambda line: self.said.append(line.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.goto(url)

    def is_well_made(self, state: str, *, but: str = "nothing") -> None:
        """Nothing in the console, nothing beside the page, nothing that axe finds.

        `but`: what the browser says of a server that is gone.
        """
        page = self.page
        if folder := os.environ.get("GAUSS_CDC_PICTURES"):
            page.screenshot(path=Folder(folder) / f"{state}-{self.name}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        found = json.loads(
            page.evaluate(
                f"async () => {{ const module = {{ exports: {{}} }};"
                f" {self.axe}; return JSON.stringify((await"
                " (window.axe ?? module.exports).run()).violations); }"
            )
        )
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []
        assert [line for line in self.said if but not in line] == []


@contextmanager
def looking(browser: Browser, url: str, axe: str) -> Iterator[list[Looked]]:
    """Both widths, of both colors."""
    found = [
        Looked(browser, url, width, scheme, axe)
        for width, scheme in zip(WIDTHS, ("dark", "light"), strict=True)
    ]
    try:
        yield found
    finally:
        for one in found:
            one.context.close()


def posted(url: str, body: bytes, **headers: str) -> tuple[int, str]:
    there = urlsplit(url)
    line = HTTPConnection(there.hostname or "", there.port or 0)
    line.request("POST", "/do", body, headers)
    answer = line.getresponse()
    return answer.status, answer.read().decode()


def test_a_person_sees_where_everything_stands_and_what_to_do(
    place: tuple[str, str, Callable[..., Served]], browser: Browser, axe: str
) -> None:
    source, target, make = place
    ask(source, MADE)
    run, apply = make("run"), make("apply")
    addresses = [urlsplit(one.start()).netloc for one in (run, apply)]
    options = [word for at in addresses for word in ("--program", at)]
    url = make("ui", "--listen", "127.0.0.1:0", "--allow-actions", *options).start()
    with looking(browser, url, axe) as both:
        for one in both:
            expect(one.page.locator("#overall")).to_have_text("well", timeout=LONG)
        ask(source, f'INSERT INTO "{HOSTILE}" SELECT g, %s FROM generate_series(1, 50) g', PLANTED)
        until(lambda: ask(target, f'SELECT count(*) FROM "{HOSTILE}"') == [(50,)], "rows", pause)
        for one in both:
            page = one.page
            row = page.locator("#tables tr").filter(has_text=HOSTILE)
            expect(row).to_contain_text("exact", timeout=LONG)
            expect(row).to_contain_text("50", timeout=LONG)
            expect(page.locator("#way")).to_contain_text("EXACT")
            expect(page.locator("#log")).to_contain_text("page, probes and metrics on")
            expect(page.locator(".chart canvas").first).to_be_visible(timeout=LONG)
            page.fill("#search", "onerror")
            expect(page.locator("#tables tr")).to_have_count(1)
            page.fill("#search", "")
            page.locator("summary").click()
            expect(page.locator("#config")).to_contain_text("bootstrap.servers")
            one.is_well_made("well")
            said = page.content()
            assert PLANTED not in said
            assert TOKEN not in said

        page = both[1].page
        page.fill("#token", "another one than that")
        page.click("text=Verify all tables")
        expect(page.locator("#done")).to_contain_text("the token is another one")
        page.fill("#token", TOKEN)
        ask(target, f'UPDATE "{HOSTILE}" SET v = %s WHERE id = 7', "changed by hand")
        page.click("text=Verify all tables")
        expect(page.locator("#verified")).to_contain_text(f"{HOSTILE}: different", timeout=LONG)
        page.click(f"[aria-label='Read again: public.{HOSTILE}']")
        expect(page.locator("#done")).to_contain_text("`run` is asked to read again")
        whole = f'SELECT count(*) FROM "{HOSTILE}" WHERE v = %s'
        until(lambda: ask(target, whole, PLANTED) == [(50,)], "the row as it is", pause)

        both[1].said.clear()  # of the answer to another token
        apply.program.kill()
        for one in both:
            expect(one.page.locator("#overall")).to_have_text("needs somebody", timeout=LONG)
            expect(one.page.locator("#findings")).to_contain_text("CdcProgramGone")
            one.is_well_made("apply is gone")


def test_the_page_of_a_program_changes_nothing_and_answers_nobody_else(
    place: tuple[str, str, Callable[..., Served]], browser: Browser, axe: str
) -> None:
    """It is served by `run` itself, and asked for by name of this machine alone."""
    run = place[2]("run")
    url = run.start()
    with looking(browser, url, axe) as both:
        for one in both:
            expect(one.page.locator("#way")).to_contain_text("Source (postgres)", timeout=LONG)
            expect(one.page.locator("#actions-section")).to_be_hidden()
            one.is_well_made("of run")

    there = urlsplit(url)
    answers = {}
    for host in (there.netloc, "gauss-cdc.example"):
        line = HTTPConnection(there.hostname or "", there.port or 0)
        line.request("GET", "/facts", headers={"Host": host, "Authorization": f"Bearer {TOKEN}"})
        answers[host] = line.getresponse()
    assert [answer.status for answer in answers.values()] == [200, 403]
    policy = answers[there.netloc].headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert run.get("/facts")[0] == run.get("/")[0] == 401
    assert posted(url, b"{}", Authorization=f"Bearer {TOKEN}")[0] == 404


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"Origin": "http://gauss-cdc.example"}, "only the page itself"),
        ({"Origin": ""}, "only the page itself"),
        ({"Content-Type": "text/plain"}, "a POST of JSON"),
        ({"Authorization": "Basic " + "YW55OnRoZS10b2tlbi1vZi10aGlzLXRlc3Qtb25seQ=="}, "token"),
    ],
)
def test_what_a_page_of_another_origin_can_send_is_no_action(
    place: tuple[str, str, Callable[..., Served]], changed: dict[str, str], why: str
) -> None:
    url = place[2]("ui", "--listen", "127.0.0.1:0", "--allow-actions").start()
    origin = f"http://{urlsplit(url).netloc}"
    headers = {"Origin": origin, "Content-Type": "application/json"}
    headers |= {"Authorization": f"Bearer {TOKEN}", **changed}

    status, said = posted(url, b'{"action": "pause"}', **headers)

    assert (status, why in said) == (403, True)


def test_a_person_without_a_mouse_waits_for_loads_and_sees_their_states(
    place: tuple[str, str, Callable[..., Served]], browser: Browser, axe: str, tmp_path: Folder
) -> None:
    source, _, make = place
    (config,) = tmp_path.glob("*.toml")
    config.write_text(f"{config.read_text()}[load]\nrate = 1000\n")
    wide = "INSERT INTO two SELECT g, repeat(%s, 20) FROM generate_series(1, 20000) g"
    ask(source, wide, PLANTED)  # larger than what is read at a point
    ask(source, "ANALYZE two")
    make("run").start()
    ui = make("ui", "--listen", "127.0.0.1:0", "--allow-actions")
    with looking(browser, ui.start(), axe) as both:
        for one in both:
            expect(one.page.locator("#way")).to_contain_text("newest commit", timeout=LONG)
            expect(one.page.locator("#findings")).to_contain_text("start `gauss-cdc apply`")
            one.is_well_made("before apply")
        make("apply").start()
        for one in both:
            expect(one.page.locator("#overall")).to_have_text("well", timeout=LONG)

        page = both[1].page
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to content")
        page.keyboard.press("Enter")
        reached(page, "#token")
        page.keyboard.type(TOKEN)
        pressed(page, "#pause")
        expect(page.locator("#done")).to_contain_text("until `resume`", timeout=LONG)
        button = "[aria-label='Read again: public.two']"
        pressed(page, button, key="Shift+Tab")
        for one in both:
            expect(one.page.locator("#loads")).to_contain_text("public.two", timeout=LONG)
            one.is_well_made("a load waits")
        pressed(page, "#resume")
        reached(page, button, key="Shift+Tab")
        state = page.locator("#tables tr").filter(has_text="public.two").locator(".state span")
        expect(page.locator("#loads progress")).to_have_count(1, timeout=LONG)
        for one in both:
            expect(one.page.locator("#loads progress")).to_have_count(1)
            one.is_well_made("a load")
        expect(state).to_have_text("loading", timeout=LONG)
        expect(state).to_have_text("exact", timeout=LONG)
        expect(page.locator(button)).to_be_focused()  # while its row became another

        ui.program.kill()
        for one in both:
            expect(one.page.locator("#overall")).to_contain_text("does not answer", timeout=LONG)
            expect(one.page).to_have_title(re.compile("does not answer"))
            one.is_well_made("no server", but="ERR_CONNECTION_REFUSED")


def reached(page: Page, selector: str, *, key: str = "Tab") -> None:
    """Go by keyboard to where a person would."""
    for _ in range(50):
        page.keyboard.press(key)
        if page.locator(selector).evaluate("one => one === document.activeElement"):
            return
    raise AssertionError(f"no way to {selector} by {key}")


def pressed(page: Page, selector: str, *, key: str = "Tab") -> None:
    """Go to a button, and press it."""
    reached(page, selector, key=key)
    page.keyboard.press("Enter")
