"""The pages in a browser without a window: whole at each size, light and dark, quick, live, and without a network."""

import fcntl
import json
import shutil
import time
from urllib.parse import urlsplit

import pytest
from test_pages import BAD, make_run, serving

from fxf.reports import compare, report, side_by_side

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
LOOKS = [(width, scheme) for width in (360, 1440) for scheme in ("light", "dark")]
# What reaches beyond the window on the right; what scrolls in a box of its own does not.
CUT = """[...document.querySelectorAll("body *")].filter(node =>
  (node.closest(".scroll") === null || node.matches(".scroll")) &&
  (node.getBoundingClientRect().right > innerWidth + 1 || node.getBoundingClientRect().left < -1)
).map(node => node.outerHTML.slice(0, 100))"""

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if BROWSER is None:
        pytest.skip("no Chromium")
    with playwright.sync_playwright() as started:
        found = started.chromium.launch(executable_path=BROWSER, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Returns the page of a long run with texts that are markup, and the page of 24 runs compared, by name."""
    folder = tmp_path_factory.mktemp("pages")
    names = ("loss", "validation_loss", "learning_rate", "gradient_norm", "tokens_per_second", "device_peak_bytes")
    records = [{"step": i, **{name: 1 / (i + k) for k, name in enumerate(names)}} for i in range(1, 5000)]
    run = make_run(folder / BAD.replace("/", "|"), records=records, optimizer={"name": BAD + "x" * 300})
    rows = [[BAD, BAD, "wrong " * 50], ["right", "right", "right"], ["", None, "a long text without spaces" * 20]]
    with (run / "samples.jsonl").open("w") as file:
        for step in (10, 20):
            file.write(json.dumps({"step": step, "test": False, "rows": rows[:2]}) + "\n")
        file.write(json.dumps({"step": 30, "test": True, "rows": rows}) + "\n")
    words, n = [f"␣{BAD}{i}" for i in range(64)], 64
    weights = [round(100 / (i + 1), 1) if j <= i else 0.0 for i in range(n) for j in range(n)]
    attention = {"name": "block_0/attention", "rowName": "query", "columnName": "key", "unit": " %", "rows": words,
                 "columns": words, "heads": [{"title": f"head {i}", "values": weights} for i in range(8)]}  # fmt: skip
    wide = {"name": "embedding", "rowName": "position", "columnName": "element", "rows": words, "columns": 512,
            "heads": [{"title": "positions", "values": [i % 100 / 50 - 1 for i in range(n * 512)]}]}  # fmt: skip
    lens = [["reads", "embedding", "block_0"], *([word, "x 12%", "y 99%"] for word in words)]
    inside = {"step": 30, "parameters": 7, "weights": [["a/b", "3 x 4", "d h", 12]]}
    inside["examples"] = [{"title": BAD * 5, "maps": [wide] + 6 * [attention], "lens": lens}] * 2
    (run / "inside.json").write_text(json.dumps(inside))
    for i in range(24):
        sections = {"optimizer": {"learning_rate": i // 3 / 10 + 0.1}, "seed": i % 3, "records": records[::50]}
        make_run(folder / f"sweep/{BAD[:8]}{i}", **sections)
    found = compare.comparison(compare.runs_of([folder / "sweep"]))
    (folder / "compare.html").write_text(side_by_side.as_html(found))
    return {"report": report.write(run), "compare": folder / "compare.html"}


def is_elsewhere(url, address):
    return url.startswith("http") and urlsplit(url).netloc != urlsplit(address).netloc


@pytest.fixture
def opened(browser, pages):
    """Returns what opens a page, by name or address, at a width and in a scheme: the page, and what it says and loads.

    It says what it writes to the console; of addresses those elsewhere count.
    """
    contexts = []

    def open_page(name, width=1440, scheme="light"):
        address = pages[name].as_uri() if name in pages else name
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        found, said = contexts[-1].new_page(), []
        found.on("console", lambda message: said.append(message.text))
        found.on("pageerror", lambda error: said.append(str(error)))
        found.on("dialog", lambda dialog: said.append(dialog.message))
        found.on("request", lambda request: said.append(request.url) if is_elsewhere(request.url, address) else None)
        found.goto(address)
        return found, said

    yield open_page
    for context in contexts:
        context.close()


@pytest.mark.parametrize("name", ["report", "compare"])
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_a_page_is_whole_and_says_nothing_on_the_console(opened, pages, name, width, scheme):
    start = time.monotonic()
    found, said = opened(name, width, scheme)
    assert time.monotonic() - start < 5 and pages[name].stat().st_size <= 3 * 2**20
    found.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert found.locator("svg").count() > 3 and found.locator("body script").count() == 2
    assert found.evaluate(CUT) == []
    assert found.evaluate("document.documentElement.scrollWidth") == width
    background = found.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
    assert said == []


def test_a_column_sorts_and_a_filter_leaves_rows_and_their_curves(opened):
    found, _ = opened("compare", 1440, "light")
    rows = found.locator("section", has_text="Runs").first.locator("table").first.locator("tbody tr")
    assert rows.count() == 24
    header = found.get_by_role("button", name="optimizer.learning_rate")
    header.click()
    header.click()
    assert rows.nth(0).locator("td").nth(1).inner_text() == "0.8"
    n_charts = found.locator("svg").count()
    found.get_by_role("searchbox").fill("learning_rate=0.1")
    assert rows.count() == 3 and 0 < found.locator("svg").count() < n_charts


SPEEDS = {"steps_per_second": 0.5, "tokens_per_second": 100.0}
TIMED = [{"step": step, "loss": 8 / step, "gradient_norm": step % 3 + 0.5, **SPEEDS} for step in range(10, 410, 10)]


def drag(found, chart, start, end):
    """Drags from one share of a chart's width to another."""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    found.mouse.move(box["x"] + start * box["width"], box["y"] + 60)
    found.mouse.down()
    found.mouse.move(box["x"] + end * box["width"], box["y"] + 90, steps=3)
    found.mouse.up()


def shown_steps(chart):
    """Returns the first and the last step whose points a chart shows, to a step, from the values under the pointer."""
    page, box = chart.page, chart.bounding_box()
    ends = []
    for share in (50 / 340, 334 / 340):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 60)
        ends.append(int(chart.locator("xpath=..").locator("output").inner_text().split()[1].rstrip(":")))
    return ends


@pytest.fixture
def served(tmp_path):
    """Returns a folder with a run that goes on, and the address of its live pages."""
    folder = tmp_path / "runs"
    make_run(folder / "goes on", finished=False, records=TIMED[:20])
    with serving(folder) as server, (folder / "goes on/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder, f"http://{server.server_name}:{server.server_port}/"


def test_a_live_page_shows_new_records_keeps_its_place_and_says_when_its_run_is_gone(served, opened):
    folder, address = served
    found, said = opened(f"{address}goes on/")
    state, loss = found.locator("header p"), found.locator("figure > svg").nth(0)
    assert state.inner_text().split("\n")[0].endswith("step 200 of 6")
    drag(found, loss, 0.4, 0.7)
    part = shown_steps(loss)
    found.locator("summary").first.click()
    found.evaluate("scrollTo(0, 300)")
    drawn = loss.locator("polyline").get_attribute("points")
    with (folder / "goes on/metrics.jsonl").open("a") as file:
        file.write("".join(f"\n{json.dumps(record)}" for record in TIMED[20:]) + "\n")
    state.filter(has_text="step 400 of 6").wait_for(timeout=10_000)
    assert loss.locator("polyline").get_attribute("points") != drawn and shown_steps(loss) == part
    assert found.evaluate("scrollY") == 300 and found.locator("details").first.evaluate("part => part.open")
    found.get_by_role("button", name="whole range").click()
    assert shown_steps(loss) == [10, 400]
    (folder / "goes on/result.json").write_text('{"exact_match": 0.625}')
    found.locator("header .state", has_text="finished").wait_for(timeout=10_000)
    assert "0.625" in found.locator(".tiles").inner_text() and said == []
    (folder / "goes on").rename(folder.parent / "elsewhere")
    notice = found.locator("p.bad", has_text="does not answer")
    notice.wait_for(timeout=10_000)
    (folder.parent / "elsewhere").rename(folder / "goes on")
    notice.wait_for(state="hidden", timeout=10_000)
