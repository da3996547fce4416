"""Runs of a folder as local web pages: a list, a page a run, progress of a sweep.

Only what `list_runs` lists has a page: a name in an address is looked up, never opened.
"""

import math
from datetime import UTC, datetime
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from perc.errors import InputError
from perc.report.page.exported import exposition
from perc.report.page.folders import shown
from perc.report.page.listing import Entry, damage, list_runs
from perc.report.page.render import page, render

LOCAL = ["127.0.0.1", "localhost", "[::1]", "testserver"]
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def site(root: Path, hosts: list[str] | None = None) -> Starlette:
    """The application.

    Args:
        root: folder whose runs are shown.
        hosts: names by which it may be asked for, this machine's own by default: a page
            of another site cannot reach it under a name of its own.
    """

    def find(request: Request) -> Entry:
        entry = list_runs(root).get(request.path_params["name"])
        if entry is None:
            raise HTTPException(404, "no such run; / lists them")
        return entry

    def front(request: Request) -> Response:
        return _html("list.html", title=f"Runs in {shown(root)}", runs=_rows(root))

    def run(request: Request) -> Response:
        entry = find(request)
        if not entry.finished:
            return _html("progress.html", title=f"Sweep {entry.name}", entry=entry)
        try:
            text = page([entry.read()], template="run.html")
        except InputError as error:
            raise HTTPException(409, str(error)) from None
        return HTMLResponse(text, headers=HEADERS)

    def progress(request: Request) -> Response:
        entry = find(request)
        return JSONResponse(
            {"done": entry.done, "total": entry.total, "finished": entry.finished},
            headers=HEADERS,
        )

    def snapshot(request: Request) -> Response:
        return JSONResponse(
            [*map(_snapshot, list_runs(root).values())], headers=HEADERS
        )

    async def metrics(request: Request) -> Response:
        body, kind = await run_in_threadpool(exposition, root)
        return Response(body, media_type=kind, headers=HEADERS)

    return Starlette(
        routes=[
            Route("/", front),
            Route("/run/{name:path}", run),
            Route("/progress/{name:path}", progress),
            Route("/metrics", metrics),
            Route("/runs.json", snapshot),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts or LOCAL)],
        exception_handlers={HTTPException: _refused},  # pyright: ignore
    )


def _rows(root: Path) -> list[dict]:
    return [
        {
            "name": entry.name,
            "command": entry.command,
            "changed": _when(entry.changed_s),
            "changed_s": entry.changed_s,
            **_state(entry),
        }
        for entry in list_runs(root).values()
    ]


def _when(seconds: float) -> str:
    """
    >>> _when(0), _when(1e12)  # a file may bear a year that no calendar has
    ('1970-01-01 00:00 UTC', '-')
    """
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return "-"


def _snapshot(entry: Entry) -> dict:
    """A run, and its figures if it is finished."""
    found = {
        "run": entry.name,
        "command": entry.command,
        "finished": entry.finished,
        "done": entry.done,
        "total": entry.total,
    }
    if entry.finished:
        try:
            tables = entry.read().tables
        except InputError as error:
            return found | {"finished": False, "error": str(error)}
        rows = next(iter(tables.values())).iter_rows(named=True)
        found["rows"] = [{k: _plain(v) for k, v in row.items()} for row in rows]
    return found


def _plain(value: object) -> object:
    """JSON has no NaN and no infinity."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _state(entry: Entry) -> dict[str, str]:
    """What the list says of a run, and why."""
    if not entry.finished:
        says = f"{entry.done:,} of {entry.total:,} configurations"
        return {"state": says, "why": ""}
    why = damage(entry)
    return {"state": "damaged" if why else "done", "why": why}


def _html(name: str, **values: object) -> Response:
    return HTMLResponse(render(name, **values), headers=HEADERS)


def _refused(request: Request, error: HTTPException) -> Response:
    response = _html("refused.html", title=f"{error.status_code}", says=error.detail)
    response.status_code = error.status_code
    return response
