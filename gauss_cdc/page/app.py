"""Files and facts of the page, and its actions, as WSGI.

Facts come by GET and change nothing.  An action is a POST of JSON with the token in a header, which
no form and no page of another origin can send.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from typing import Any, Final

from gauss_cdc.config import Config
from gauss_cdc.page.actions import ActionRefused, Actions
from gauss_cdc.page.lookout import Lookout
from gauss_cdc.serve.server import Application

_FILES: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/uPlot.css": ("uPlot.css", "text/css; charset=utf-8"),
    "/uPlot.js": ("uPlot.js", "text/javascript; charset=utf-8"),
}
_BESIDE: Final = 5.0  # seconds between two looks of a program that has other things to do
_JSON: Final = "application/json"
_MOST: Final = 1 << 16  # bytes of an action
_BEARER: Final = "Bearer "
# Nothing from anywhere else, nothing written into the page, and no page around it.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
)


def pages_of(config: Config) -> Mapping[str, Application]:
    """Return the pages of a program that has other things to do: nobody looks unless asked."""
    return pages(Lookout(config, every=_BESIDE))


def pages(lookout: Lookout, actions: Actions | None = None) -> Mapping[str, Application]:
    """Return what answers each path; without `actions` nothing can be changed."""
    folder = files("gauss_cdc.page") / "static"
    found: dict[str, Application] = {
        path: _answering(kind, lambda name=name: (folder / name).read_bytes())  # type: ignore[misc]
        for path, (name, kind) in _FILES.items()
    }
    found["/facts"] = _answering(_JSON, lookout.facts)
    if actions is not None:
        found["/do"] = _doing(actions)
    return found


def _answering(kind: str, content: Callable[[], bytes]) -> Application:
    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            return _json(start, "405 Method Not Allowed", {"error": "only GET"})
        start("200 OK", [("Content-Type", kind), *_HEADERS])
        return [content()]

    return answer


def _doing(actions: Actions) -> Application:
    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if why := _why_not(environ, actions):
            return _json(start, "403 Forbidden", {"error": why})
        try:
            asked = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
            action, tables = str(asked["action"]), [str(name) for name in asked.get("tables", ())]
        except (ValueError, TypeError, KeyError, AttributeError):
            return _json(start, "400 Bad Request", {"error": "not an action"})
        try:
            return _json(start, "200 OK", {"done": actions.do(action, tables)})
        except ActionRefused as error:
            return _json(start, "409 Conflict", {"error": str(error)})

    return answer


def _why_not(environ: Mapping[str, Any], actions: Actions) -> str:
    """Say why a request may not act; "": it may."""
    given = str(environ.get("HTTP_AUTHORIZATION", ""))
    length = str(environ.get("CONTENT_LENGTH") or "")
    origin = str(environ.get("HTTP_ORIGIN", "")).rpartition("://")[2]
    if environ["REQUEST_METHOD"] != "POST" or environ.get("CONTENT_TYPE") != _JSON:
        return "an action is a POST of JSON"
    if not origin or origin != environ.get("HTTP_HOST"):
        return "only the page itself may ask"
    if not length.isdecimal() or int(length) > _MOST:
        return "too long"
    if not given.startswith(_BEARER) or not actions.is_allowed(given.removeprefix(_BEARER)):
        return "the token is another one: it was printed where the page was started"
    return ""


def _json(start: Callable[..., Any], status: str, what: Mapping[str, object]) -> Iterable[bytes]:
    start(status, [("Content-Type", _JSON), *_HEADERS])
    return [json.dumps(what).encode()]
