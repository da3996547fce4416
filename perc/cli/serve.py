"""`perc serve`: the runs of a folder as local web pages."""

import sys
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from perc.errors import InputError


def serve(
    folder: Annotated[Positional[Path], arg(metavar="FOLDER")] = Path("."),
    *,
    port: int = 8765,
) -> None:
    """Show the runs of a folder in a browser, and how far a running sweep has come.

    Only this machine can reach the pages. /metrics has the figures for Prometheus.

    Args:
        folder: with folders of --out in it, up to three levels deep.
        port: of 127.0.0.1; 0 takes a free one.

    Raises:
        InputError: if the folder is none, its path cannot stand in a page, the port is
            taken, or starlette or uvicorn is not installed.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder. Name one with runs in it.")
    try:
        import uvicorn

        from perc.report.page.folders import check_name
        from perc.report.page.site import site
    except ImportError as error:
        raise InputError(
            f"perc serve needs {error.name}: pip install 'perc-kv[serve]'"
        ) from None
    check_name(folder.resolve())
    listener = _listen(port)
    port = listener.getsockname()[1]
    print(f"http://127.0.0.1:{port}/ shows {folder}; Ctrl-C ends it", file=sys.stderr)
    config = uvicorn.Config(site(folder.resolve()), log_level="warning", lifespan="off")
    uvicorn.Server(config).run(sockets=[listener])


def _listen(port: int):
    import socket

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise InputError(
            f"--port {port}: {error}; choose another, or 0 for a free one."
        ) from None
    return listener
