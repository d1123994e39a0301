"""The server of the live pages, without a browser."""

import json
import re
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer

import pytest
from test_pages import BAD, data_of, make_run

from fxf.reports import live
from fxf.reports.page import page
from fxf.reports.report import contents
from fxf.reports.run_files import read
from small_runs import ROOT


@contextmanager
def serving(folder):
    """Serves the runs in a folder as the command does."""
    server = ThreadingHTTPServer((live.HOST, 0), partial(live.Handler, folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def asked(tmp_path):
    """Returns what asks the server of a folder of two runs for a path: the answer's status, headers and text."""
    make_run(tmp_path / "runs/a b", seed=3)
    make_run(tmp_path / "runs/sweep/1", finished=False)
    make_run(tmp_path / "secret")
    with serving(tmp_path / "runs") as server:

        def ask(path, **headers):
            connection = HTTPConnection(live.HOST, server.server_port)
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            found = answer.status, dict(answer.getheaders()), answer.read().decode()
            connection.close()
            return found

        yield ask


def test_a_run_is_served_by_its_name_with_the_data_of_its_page(asked, tmp_path):
    expected = {**contents(read(tmp_path / "runs/a b")), "up": "/"}
    for path in ("/a%20b/", "/a%20b"):
        status, headers, text = asked(path)
        assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
        assert data_of(text) == expected and "connect-src 'self'" in text
    assert "connect-src" not in page("t", {}, ["report.js"])
    assert json.loads(asked("/a%20b/data.json")[2]) == expected


def test_all_runs_are_listed_with_what_they_have_reached(asked, tmp_path):
    (tmp_path / "runs/broken").mkdir()
    (tmp_path / "runs/broken/config.json").write_text("{")

    def rows():
        found = sorted(json.loads(asked("/data.json")[2])["runs"], key=lambda row: row["name"])
        shown = ("name", "link", "state", "step", "figure", "value", "model", "task")
        return [[row[name] for name in shown] for row in found]

    kind = ["transformer_lm", "reversal"]
    stopped = ["sweep/1", "/sweep/1/", "stopped", 6, "exact_match", 0.25, *kind]
    assert rows() == [["a b", "/a%20b/", "finished", 6, "exact_match", 0.5, *kind], stopped]
    (tmp_path / "runs/a b/result.json").write_text('{"exact_match": 1.0}')
    assert rows() == [["a b", "/a%20b/", "finished", 6, "exact_match", 1.0, *kind], stopped]


@pytest.mark.parametrize(
    "path", ["/other/", "/../secret/", "/%2e%2e/secret/data.json", "/sweep/", "/a%20b/config.json", f"/{BAD[:8]}"]
)
def test_nothing_but_the_pages_of_its_runs_is_served(asked, path):
    status, _, text = asked(path)
    assert status == 404 and "<script" not in text


def test_a_page_whose_name_leads_here_may_not_read_the_runs(asked):
    assert asked("/", Host="elsewhere.example")[0] == 403
    assert asked("/", Host="localhost:8000")[0] == 200  # by a forwarded port


def test_the_command_serves_one_run_without_jax_until_it_is_stopped(tmp_path):
    folder = make_run(tmp_path / "run")
    program = "import sys; from fxf.__main__ import main; sys.modules['jax'] = None; main()"
    words = [sys.executable, "-c", program, "report", "--live", str(folder)]
    pipes = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*words, "--port=0"], **pipes) as started, ExitStack() as stack:
        stack.callback(started.kill)  # also where the test fails
        (port,) = re.findall(r"^http://127.0.0.1:(\d+)/", started.stdout.readline())
        connection = HTTPConnection(live.HOST, int(port))
        connection.request("GET", "/")
        assert data_of(connection.getresponse().read().decode())["up"] is None
        taken = subprocess.run([*words, f"--port={port}"], timeout=60, **pipes)
        said = f"error: --port: {port}: Address already in use; --port=0 takes one that is free\n"
        assert (taken.returncode, taken.stderr) == (2, said)
        started.send_signal(signal.SIGINT)
        assert started.wait(timeout=60) == 130 and started.stderr.read() == "stopped by SIGINT\n"
