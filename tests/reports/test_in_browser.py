"""The pages in a browser without a window: whole at each size, light and dark, quick, and without a network."""

import json
import shutil
import time

import pytest
from test_pages import BAD, make_run

from fxf.reports import compare, report, side_by_side

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = [
    "--no-sandbox",  # as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
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


@pytest.fixture
def opened(browser, pages):
    """Returns what opens a page at a width and in a scheme: the page, and what it wrote to the console."""
    contexts = []

    def open_page(name, width, scheme):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        found, said = contexts[-1].new_page(), []
        found.on("console", lambda message: said.append(message.text))
        found.on("pageerror", lambda error: said.append(str(error)))
        found.on("dialog", lambda dialog: said.append(dialog.message))
        found.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
        found.goto(pages[name].as_uri())
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
    assert rows.nth(0).locator("td").nth(0).inner_text() == "0.8"
    n_charts = found.locator("svg").count()
    found.locator("input").fill("learning_rate=0.1")
    assert rows.count() == 3 and 0 < found.locator("svg").count() < n_charts
