"""The pages in a headless browser: complete at each size, light and dark, fast, live, and without a network."""

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
# Elements that overflow the window on the right, except inside scrolling boxes.
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
    """Returns by name the page of a long run with texts that look like markup, and the page that compares 24 runs."""
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
    """Returns a function that opens a page, by name or address, at a width and in a color scheme, with its messages.

    The messages are console output, and requests to other hosts.
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
def test_a_page_is_complete_and_logs_nothing_to_the_console(opened, pages, name, width, scheme):
    start = time.monotonic()
    found, said = opened(name, width, scheme)
    assert time.monotonic() - start < 5 and pages[name].stat().st_size <= 3 * 2**20
    found.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    assert found.locator("svg").count() > 3 and found.locator("body script").count() == 2
    assert found.evaluate(CUT) == [] and found.evaluate("[3.92e-3, 12500].map(tickText).join()") == "3.92e-3,1.25e4"
    assert found.evaluate("document.documentElement.scrollWidth") == width
    background = found.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}[scheme]
    assert said == []


def test_a_column_sorts_and_a_filter_leaves_rows_and_their_curves(opened):
    found, _ = opened("compare", 1440, "light")
    rows = found.locator("section", has_text="Runs").first.locator("table").first.locator("tbody tr")
    assert rows.count() == 24 and found.evaluate("scale(Array(2e5).fill(1), 0, 9).ticks.length")  # of hundreds of runs
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
    """Drags between two shares of a chart's width."""
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    found.mouse.move(box["x"] + start * box["width"], box["y"] + 60)
    found.mouse.down()
    found.mouse.move(box["x"] + end * box["width"], box["y"] + 90, steps=3)
    found.mouse.up()


@pytest.fixture
def charts(opened, tmp_path):
    """Returns the page of a run of 400 steps in 800 seconds, and its charts."""
    found, said = opened(report.write(make_run(tmp_path / "run", records=TIMED)).as_uri())
    yield found, found.locator("figure > svg")
    assert said == []


def shown_steps(chart):
    """Returns the first and the last step that a chart shows, from the values under the pointer."""
    page, box = chart.page, chart.bounding_box()
    ends = []
    for share in (50 / 340, 334 / 340):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 60)
        ends.append(int(chart.locator("xpath=..").locator("output").inner_text().split()[1].rstrip(":")))
    return ends


def test_dragging_shows_a_part_of_all_charts_and_a_double_click_the_whole(charts):
    found, (loss, norm) = charts[0], (charts[1].nth(i) for i in range(2))
    assert shown_steps(loss) == [10, 400]
    drag(found, loss, 0.4, 0.7)  # x from 50 to 334 of 340 is steps 10 to 400
    part = [10 + 390 * (340 * share - 50) / 284 for share in (0.4, 0.7)]
    for chart in (loss, norm):
        first, last = shown_steps(chart)
        assert part[0] <= first < part[0] + 10 and part[1] - 10 < last <= part[1]
    loss.dblclick()
    assert shown_steps(norm) == [10, 400]
    drag(found, norm, 0.4, 0.7)
    found.get_by_role("button", name="whole range").click()
    assert shown_steps(loss) == [10, 400] and found.get_by_role("button", name="whole range").is_disabled()


def test_x_is_steps_tokens_or_time_and_y_linear_or_logarithmic(charts):
    found, loss = charts[0], charts[1].nth(0)
    read = loss.locator("xpath=..").locator("output")
    x, height = found.get_by_label("x", exact=True), found.get_by_label("height")
    assert read.inner_text() == "step 400: 0.02" and "steps" in loss.text_content()
    x.select_option("tokens")
    assert read.inner_text() == "80,000 tokens: 0.02"
    x.select_option("seconds")
    assert read.inner_text() == "13.33 minutes: 0.02"
    for choice, is_log in (("linear", False), ("log", True), ("auto", False)):  # 0.8 to 0.02 is less than two decades
        height.select_option(choice)
        assert ("(logarithmic height)" in loss.text_content()) == is_log


def test_smoothing_draws_a_mean_before_the_values_and_none_at_zero(charts):
    found, norm = charts[0], charts[1].nth(1)
    lines = norm.locator("polyline")
    heights = "node => node.getAttribute('points').split(' ').map(point => Number(point.split(',')[1]))"
    assert lines.count() == 1
    plain = lines.nth(0).evaluate(heights)
    found.get_by_label("smoothing").fill("0.9")
    assert lines.count() == 2 and lines.nth(0).evaluate(heights) == plain
    smooth = lines.nth(1).evaluate(heights)
    assert max(smooth) - min(smooth) < 0.3 * (max(plain) - min(plain))
    at = [2.5 * i for i in range(40)]  # in hundredths of the whole, up to a factor of 40/39
    weights = [0.9 ** (abs(place - at[20]) * 40 / 39) for place in at]
    mean = sum(w * y for w, y in zip(weights, plain, strict=True)) / sum(weights)
    assert smooth[20] == pytest.approx(mean, abs=0.1)


@pytest.fixture
def served(tmp_path):
    """Returns a folder with one active and two ended runs, and the address of its live pages."""
    folder = tmp_path / "runs"
    make_run(folder / "goes on", finished=False, records=TIMED[:20])
    make_run(folder / f"sweep/{BAD[:8]}", result={"exact_match": 0.75}, seed=3)
    make_run(folder / "failed", finished=False, records=TIMED)
    (folder / "failed/ended.txt").write_text(f"error: {BAD}\n")
    with serving(folder) as server, (folder / "goes on/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder, f"http://{server.server_name}:{server.server_port}/"


def add(folder, *records):
    with (folder / "goes on/metrics.jsonl").open("a") as file:
        file.write("".join(f"\n{json.dumps(record)}" for record in records) + "\n")


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
    add(folder, *TIMED[20:])
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


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_live_pages_are_complete_and_load_nothing_from_elsewhere(served, opened, width, scheme):
    for path in ("", "goes on/"):
        found, said = opened(served[1] + path, width, scheme)
        found.wait_for_timeout(1500)  # they have asked for newer data
        assert found.evaluate(CUT) == [] and found.evaluate("document.documentElement.scrollWidth") == width
        assert said == []
    assert found.evaluate("fetch('http://127.0.0.2:9/').then(() => 'asked', () => 'refused')") == "refused"
    assert "Content Security Policy" in said[0]


def test_the_page_of_all_runs_sorts_filters_updates_and_links_to_each(served, opened):
    folder, address = served
    found, said = opened(address)
    rows = found.locator("tbody tr")
    table = {row[0]: row for row in (rows.nth(i).locator("td").all_inner_texts() for i in range(3))}
    assert table[f"sweep/{BAD[:8]}"][1:6] == ["finished", "6", "6", "exact_match", "0.75"]
    assert table["goes on"][1:7] == ["running", "200", "6", "train_loss", "0.04", "6 min 40 s"]
    assert table["failed"][1] == "failed" and table["failed"][-1].startswith("<script>")
    for expected in (["failed", "goes on", "sweep/<script>"], ["sweep/<script>", "goes on", "failed"]):
        found.get_by_role("button", name="run").click()
        assert [rows.nth(i).locator("td").first.inner_text() for i in range(3)] == expected
    found.locator("input").fill("reversal RUNNING")
    assert rows.count() == 1 and found.locator("p.faint").inner_text() == "1 of 3 runs"
    add(folder, {"step": 290, "loss": 0.125, **SPEEDS})
    rows.locator("td", has_text="290").wait_for(timeout=10_000)
    assert rows.count() == 1
    rows.locator("a").click()
    found.locator("h1", has_text="goes on · reversal").wait_for()
    found.get_by_role("link", name="all runs").click()
    found.locator("h1", has_text="Runs in").wait_for()
    assert said == []


def test_heads_of_a_layer_have_one_scale(opened):
    found, _ = opened("report")
    found.evaluate("""insideExample({ title: "t", lens: null, maps: [{ name: "m", rows: ["a"], columns: ["b"],
      rowName: "r", columnName: "c", unit: " %", heads: [{ title: "weak", values: [25] },
      { title: "strong", values: [100] }] }] }, 0)
      .querySelectorAll("figure").forEach(figure => document.body.prepend(figure))""")
    weak = found.locator("figure", has_text="weak").first
    assert "full color 100 %" in weak.inner_text()
