"""The server of the live pages, without a browser."""

import json
import threading
from contextlib import contextmanager
from functools import partial
from http.client import HTTPConnection
from http.server import ThreadingHTTPServer

import pytest
from test_pages import BAD, data_of, make_run

from fxf.reports import live
from fxf.reports.page import page
from fxf.reports.report import contents
from fxf.reports.run_files import read


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
