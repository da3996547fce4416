"""Runs of a folder as local web pages: a list, a page a run, progress of a sweep.

Only what `list_runs` lists has a page: a name in an address is looked up, never opened.
"""

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
from perc.report.page.folders import read_run
from perc.report.page.listing import Entry, list_runs
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
        return _html("list.html", title=f"Runs in {root}", runs=_rows(root))

    def run(request: Request) -> Response:
        entry = find(request)
        if not entry.finished:
            return _html("progress.html", title=f"Sweep {entry.name}", entry=entry)
        try:
            return HTMLResponse(page([read_run(entry.folder)]), headers=HEADERS)
        except InputError as error:
            raise HTTPException(409, str(error)) from None

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
            "changed": datetime.fromtimestamp(entry.changed_s, UTC).strftime(
                "%Y-%m-%d %H:%M UTC"
            ),
            "changed_s": entry.changed_s,
            "state": _state(entry),
        }
        for entry in list_runs(root).values()
    ]


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
            tables = read_run(entry.folder).tables
        except InputError as error:
            return found | {"error": str(error)}
        found["rows"] = next(iter(tables.values())).to_dicts()
    return found


def _state(entry: Entry) -> str:
    if entry.finished:
        return "done"
    of = "" if entry.total is None else f" of {entry.total:,}"
    return f"{entry.done:,}{of} configurations"


def _html(name: str, **values: object) -> Response:
    return HTMLResponse(render(name, **values), headers=HEADERS)


def _refused(request: Request, error: HTTPException) -> Response:
    response = _html("refused.html", title=f"{error.status_code}", says=error.detail)
    response.status_code = error.status_code
    return response
