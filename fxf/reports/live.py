"""Live pages of runs, served to browsers on this machine: one of each run, and one of all runs in a folder.

The pages poll for new data, which the server reads from the run folders at each request.
"""

import contextlib
from collections.abc import Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from fxf.base.errors import UserError
from fxf.reports.page import as_json, page
from fxf.reports.report import SCRIPTS, contents, main_figure
from fxf.reports.run_files import NO_VALUE, RECORDS, RESULT, by_numbers, is_run, no_run, read

HOST, DATA = "127.0.0.1", "data.json"


class Handler(BaseHTTPRequestHandler):
    """Serves the page of a run at the run's path, that of all runs at /, and the data of a page at PATH/data.json."""

    def __init__(self, folder: Path, *request: Any) -> None:
        self.folder = folder
        super().__init__(*request)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the tab was closed or reloaded during the request
            super().handle()

    def do_GET(self) -> None:
        # Against DNS rebinding: a site whose name resolves to this machine may not read the runs.
        if urlsplit(f"//{self.headers['Host']}").hostname not in (HOST, "localhost"):
            return self.send_error(403)
        path, _, last = unquote(urlsplit(self.path).path).strip("/").rpartition("/")
        is_data = last == DATA
        try:
            data, scripts = shown(self.folder, path if is_data else f"{path}/{last}".strip("/"))
        except UserError:  # no such run, or not yet
            return self.send_error(404)
        body = (as_json(data) if is_data else page(data["title"], data, [*scripts, "live.js"], live=True)).encode()
        self.send_response(200)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", "application/json" if is_data else "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


def serve(folder: Path, port: int) -> None:
    """Serves the page of a run, or of the runs in a folder, until a signal ends the process.

    Args:
      port: 0 takes a free one.

    Raises:
      UserError: there is no run, or the port is not available.
    """
    if not folders_of(folder):
        raise no_run(folder)
    try:
        server = ThreadingHTTPServer((HOST, port), partial(Handler, folder))
    except OSError as error:
        raise UserError(f"--port: {port}: {error.strerror}; --port=0 takes one that is free") from None
    print(f"http://{HOST}:{server.server_port}/ (Ctrl-C ends it)", flush=True)
    server.serve_forever()


def folders_of(folder: Path) -> dict[str, Path]:
    """Returns run folders by name: a run folder itself as "", else those in the folder and in its sweeps."""
    if is_run(folder):
        return {"": folder}
    paths = (path.parent for pattern in ("*", "*/*") for path in folder.glob(f"{pattern}/config.json"))
    names = sorted((path.relative_to(folder).as_posix() for path in paths), key=by_numbers)
    return {name: folder / name for name in names}


def shown(folder: Path, name: str) -> tuple[dict[str, Any], Sequence[str]]:
    """Returns the data and scripts of the page of a run, or of all runs if `name` is "" and `folder` is not a run.

    Raises:
      UserError: there is no such run, or its config.json is damaged.
    """
    folders = folders_of(folder)
    if name in folders:
        return {**contents(read(folders[name])), "up": "/" if name else None}, SCRIPTS
    if name:
        raise no_run(folder / name)
    rows = [row for path, place in folders.items() if (row := _row(path, place))]
    rows.sort(key=lambda row: -(row["changed"] or 0))
    return {"title": f"Runs in {folder}", "runs": rows}, ["runs.js"]


def _row(name: str, folder: Path) -> dict[str, Any] | None:
    """Returns a run's row of the page of all runs; None if its config.json is damaged."""
    written = [path.stat().st_mtime for path in (folder / RECORDS, folder / RESULT) if path.exists()]
    try:
        run = read(folder)
    except UserError:
        return None
    seconds, (figure, value) = run.axes().get("seconds"), main_figure(run)
    return {
        "name": name,
        "link": f"/{quote(name)}/",
        "task": run.task,
        "model": run.model,
        "state": run.state,
        "step": run.metrics[-1]["step"] if run.metrics else 0,
        "steps": run.config.get("train", {}).get("steps"),
        "figure": figure,
        "value": NO_VALUE if figure and value is None else value,
        "seconds": seconds[-1][1] if seconds else None,
        "changed": written[0] if written else None,
        "why": run.said.partition("; ")[2],
    }
