"""What README and the pages of docs/ say: their commands, files, links and names exist, and their code runs."""

import functools
import importlib
import json
import re
import shlex
import sys
from unittest import mock

import jax
import numpy as np
import pytest

import fxf
from closeness import assert_close
from fxf.base.config import section
from fxf.base.weights import initialize
from fxf.data.corpus import DataConfig, read_corpus
from fxf.data.documents import DocumentsConfig
from fxf.data.mixture import parts_of
from fxf.layers.kinds import layer_of, stack_of
from fxf.layers.named import names_in
from fxf.layers.normalization import normalize
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.runs import configs, run
from fxf.runs.experiment import default_config
from fxf.runs.guests import load
from fxf.testing import (
    assert_consistent,
    assert_padding_unread,
    assert_rows_independent,
)
from fxf.training.gradient import objective_and_gradient
from fxf.training.trackers import Trackers
from fxf.verbs.flags import Parser
from helpers import VOCAB_SIZE, applied, random_params, random_tokens, small, small_model
from page_code import code_of, write_files
from small_runs import KEPT, ROOT, new_process, tiny_config

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
}
TEXT = "".join(PAGES.values())
COMMANDS = sorted(
    set(re.findall(r"^    ((?:[A-Z_]+=\S+ )?fxf \w+ (?:.*\\\n)*.*)$", TEXT, re.MULTILINE)),
    key=lambda line: line.split("fxf "),
)


def test_readme_is_at_most_160_lines_and_no_page_but_the_reference_above_1500_words():
    assert len(PAGES["README.md"].splitlines()) <= 160
    words = {page: len(text.split()) for page, text in PAGES.items()}
    assert {page for page, n in words.items() if n > 1500} <= {"docs/keys.md"}


@pytest.fixture(scope="module")
def own_files(tmp_path_factory):
    """Returns a folder with the config files that the pages let a reader write."""
    folder = tmp_path_factory.mktemp("own")
    write_files(folder)
    return folder


def test_a_command_names_a_verb_its_flags_and_a_config_with_its_keys(own_files, monkeypatch):
    monkeypatch.chdir(own_files)
    assert len(COMMANDS) > 40
    for command in COMMANDS:
        words = shlex.split(command.replace("\\\n", " "))
        _, verb, *arguments = words[words.index("fxf") :]
        module = importlib.import_module(f"fxf.verbs.{verb}")
        with new_process():
            try:
                args = Parser(verb, module).parse(arguments)
                if args.overrides or getattr(args, "config", None):
                    configs.with_changes(configs.read_config(args.config), args.overrides, "--config.")
            except fxf.UserError as error:
                pytest.fail(f"{command}: {error}", pytrace=False)


def test_files_that_the_pages_name_exist():
    names = set(re.findall(r"((?:configs|experiments|fxf|tests)/[\w/]+\.(?:py|sh|sbatch|yaml|md))", TEXT))
    assert len(names) > 10
    assert [name for name in names if not (ROOT / name).is_file() and not name.startswith("fxf/configs")] == []


def pages_with_links():
    """Returns every page of text and the tour, by their paths."""
    found = [ROOT / "docs/tour.py"]
    for pattern in ("*.md", "docs/*.md", "experiments/**/*.md"):
        found += ROOT.glob(pattern)
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


@pytest.mark.parametrize("page", pages_with_links())
def test_links_lead_to_pages_and_headings(page):
    for target in re.findall(r"\]\(([^)]+)\)", (ROOT / page).read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent / path
        assert found.is_file(), target
        headings = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE) if anchor else []
        assert not anchor or anchor in [heading.lower().replace(" ", "-") for heading in headings], target


def test_every_name_of_the_face_has_a_line_in_a_page():
    assert [
        name for name in fxf.__all__ if f"fxf.{name}" not in TEXT and name not in ("Model", "Run", "__version__")
    ] == []


@pytest.fixture(scope="module", autouse=True)
def kept_programs():
    """Lets trainings of one config, as those of `example0`, share their programs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "train", functools.partial(run.train, kept=KEPT))
        yield


def example0(**sections):
    return tiny_config(task={"n_tokens": 10}, model={"n_layers": 2}, checkpoint={"every": 0}, **sections)


@pytest.fixture(scope="module")
def with_example0(tmp_path_factory):
    """Returns a folder where a run stands as the pages have it, though it is hardly trained."""
    folder = tmp_path_factory.mktemp("pages")
    fxf.train(example0(), folder / "runs/example0")
    return folder


def test_every_block_of_python_is_run_by_a_test():
    found = {page: len(code_of(page)) for page in PAGES if code_of(page)}
    # By the test below, and each other block by its own.
    shared = {"README.md": 3, "docs/python.md": 3, "docs/probing.md": 1}
    others = {
        "docs/trackers.md": 2,
        "docs/extending.md": 5,
        "docs/own_parts.md": 1,
        "docs/first_week.md": 2,  # by test_wheel.py
        "docs/own_task.md": 2,
        "docs/inside.md": 5,
        "docs/flax.md": 3,
        "docs/tasks.md": 1,
    }
    assert found == shared | others


@pytest.mark.parametrize(
    ("page", "number"),
    [
        *(("README.md", number) for number in (1, 2)),
        *(pytest.param("docs/python.md", number, marks=pytest.mark.thorough) for number in range(3)),
        pytest.param("docs/probing.md", 0, marks=pytest.mark.thorough),
    ],
)
def test_the_python_code_runs(page, number, with_example0, monkeypatch, capsys):
    monkeypatch.chdir(with_example0)
    code = code_of(page)
    exec(code[number], {})
    printed = capsys.readouterr().out.splitlines()
    expected = re.findall(r"^print\(.*\)  # (.*)$", code[number], re.MULTILINE)
    assert len(printed) == len(expected)
    assert (page == "README.md" and number == 2) or printed == expected  # a run of a few steps answers something


@pytest.mark.thorough
def test_the_inside_is_read_patched_steered_and_attributed(with_example0, monkeypatch):
    monkeypatch.chdir(with_example0)
    page = {}
    with jax.numpy_rank_promotion("raise"):
        exec("\n".join(code_of("docs/inside.md")), page)
    assert page["all_patches"]._cache_size() == 1  # one program for all of them
    after_clean = float(page["logits_BTV"][0, -1, 3])
    # After the last block the last token is read out, and no other one; both prompts begin with token 0.
    assert page["effects"].shape == page["attribution_NT"].shape == (2, 4)
    assert page["effects"][1, 3] == pytest.approx(after_clean, abs=1e-5)
    before = float(jax.jit(page["model"].apply)(page["params"], page["other"])[0, -1, 3])
    np.testing.assert_allclose(page["effects"][:, 0], before, atol=1e-5)
    np.testing.assert_allclose(page["effects"][1, :3], before, atol=1e-5)
    np.testing.assert_allclose(page["attribution_NT"][1, :3], 0, atol=1e-6)
    assert abs(float(page["attribution_NT"][1, 3])) > 1e-4
    assert not np.allclose(page["steered_BTV"][0, -1], page["logits_BTV"][0, -1], atol=1e-3)
    asked = names_in(
        page["balanced"], np.ones((3, 2), np.float32), np.ones((3, 2), np.float32), np.zeros(2, np.float32)
    )
    assert {"term/balance/total", "term/moved/bias/total", "figure/largest_load"} <= {*asked}


@pytest.mark.thorough
def test_the_tracker_of_the_page_receives_a_run(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(code_of("docs/trackers.md")[0])
    with new_process():
        named = load(tmp_path / "mine.py").get_config().log.trackers
        fxf.train(example0(log={"trackers": named}), tmp_path / "run")
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run ")]
    assert told[0] == "run has 2 blocks" and told[-1] == "run ends"
    assert [line.split()[1] for line in told[1:-1]] == ["3", "6", "6"]


def test_the_other_tracker_of_the_page_tells_its_library_what_it_receives(tmp_path, monkeypatch):
    library = mock.MagicMock()
    monkeypatch.setitem(sys.modules, "wandb", library)
    page = {}
    exec(code_of("docs/trackers.md")[1], page)
    for resumed_at in (0, 3):
        with Trackers() as trackers:
            trackers.open({"own": page["WeightsAndBiases"]}, tmp_path, resumed_at)
            trackers.scalars(resumed_at + 1, "train", {"loss": 0.25})
    first, second = (call.kwargs["id"] for call in library.init.call_args_list)
    assert first == second and len(first) == 8
    assert [call.kwargs["step"] for call in library.init.return_value.log.call_args_list] == [1, 4]
    assert library.init.return_value.finish.call_count == 2


@pytest.mark.thorough
def test_the_task_of_the_page_trains_scores_answers_and_has_a_sweep(own_files, tmp_path, monkeypatch, capsys):
    _, code = code_of("docs/own_task.md")
    monkeypatch.chdir(tmp_path)
    with new_process():
        file = load(own_files / "sort.py")
        config = file.get_config()
        config.model.n_layers, config.model.d_model, config.task.examples = 1, 8, 5
        config.train.steps, config.log.tensorboard = 4, False
        figures = fxf.train(config, "runs/longer")
        assert 0 <= figures["exact_match"] <= 1 and figures["steps"] == 4
        exec(code, {})
        points = []
        file.sweep(lambda **changes: points.append(changes))
        assert len(points) == 4
    assert re.search(r"^\['[\d: ]*'\]$", capsys.readouterr().out, re.MULTILINE)


def test_the_corpus_of_the_page_reads_json_lines(own_files, tmp_path):
    rows = [{"en": f"say {n}", "fr": f"dis {n}"} for n in range(10)]
    (tmp_path / "pairs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with new_process():
        data = load(own_files / "pairs.py").get_config().data.to_dict()
        corpus = read_corpus(section(DataConfig, {**data, "path": str(tmp_path / "pairs.jsonl")}, "data"))
    assert [len(part) for part in (corpus.train, corpus.validation, corpus.test)] == [8, 1, 1]
    assert corpus.train[-1] == ("say 9", "dis 9", f"{tmp_path}/pairs.jsonl:10")


def test_the_mixture_of_the_page_has_the_weights_that_its_flags_say():
    config = default_config("language_model")
    (code,) = code_of("docs/tasks.md")
    exec(code, {"config": config})
    parts = parts_of(section(DocumentsConfig, {**config.data.to_dict(), "format": "json_lines"}, "data"))
    assert {name: (each.share, each.config.field) for name, each in parts.items()} == {
        "wiki": (0.75, "text"),
        "code": (0.25, "content"),
    }


@pytest.mark.thorough
def test_the_check_of_the_page_passes(own_files):
    with new_process():
        load(own_files / "mine.py")
        load(own_files / "check.py")


@pytest.mark.thorough
def test_the_layer_of_the_page_mixes_each_vector_with_the_one_before_and_decodes_as_it_trains(own_files):
    with new_process():
        config = load(own_files / "shift.py").get_config()
        blocks = "3*(shift:Shift+feed_forward), attention+feed_forward"
        layers = {"Shift": {"start": 0.25}}
        model, params = small_model(n_layers=4, blocks=blocks, layers=layers)
        with jax.numpy_rank_promotion("allow"):
            assert_consistent(model, params, {"inputs": random_tokens((3, 6))})
        layer = stack_of(small(blocks=config.model.blocks, layers=layers)).blocks[0].layers["Shift"]
        weights = initialize(layer.spec(), jax.random.key(0))
    x_BTD = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)
    before = np.concatenate([np.zeros((2, 1, 6)), x_BTD[:, :-1]], axis=1)
    with jax.numpy_rank_promotion("allow"):
        shifted = applied(layer, weights, x_BTD)
    assert_close(shifted, 0.75 * x_BTD + 0.25 * before)


@pytest.mark.thorough
def test_the_block_of_the_page_adds_the_outputs_of_one_stream(own_files):
    with new_process():
        assert load(own_files / "parallel.py").get_config().model.block == "parallel:Parallel"
        config = small(block="parallel:Parallel")
        assert_consistent(*small_model(block="parallel:Parallel"), {"inputs": random_tokens((3, 5))})
        block = stack_of(config).blocks[0]
        weights = random_params(block.spec())
        x_BTD = np.random.default_rng(0).normal(size=(2, 5, 6)).astype(np.float32)

        @jax.jit
        def whole_and_sum(weights, x_BTD):
            total_BTD = x_BTD
            for name in ("attention", "feed_forward"):
                read_BTD = normalize(config, weights[f"{name}_norm"], x_BTD)
                total_BTD += applied(layer_of(config, name), weights[name], read_BTD)
            return applied(block, weights, x_BTD), total_BTD

        assert_close(*whole_and_sum(weights, x_BTD))


@pytest.mark.thorough
def test_the_term_of_the_page_trains_with_the_loss_and_its_figure_is_shown(own_files):
    tokens = random_tokens((3, 5))
    batch = {"inputs": tokens, "targets": tokens, "weights": np.ones((3, 5), np.float32)}
    with new_process():
        assert load(own_files / "small.py").get_config().model.feed_forward == "small:Small"
        gradients = []
        for strength in (0.0, 1.0):
            model, params = small_model(feed_forward="small:Small", layers={"feed_forward": {"strength": strength}})
            *_, gradient, metrics = jax.jit(functools.partial(objective_and_gradient, model))(params, batch)
            gradients.append(gradient)
    assert metrics["term/small"] == pytest.approx(float(metrics["figure/small"]))
    assert not np.allclose(*(gradient["blocks"]["0"]["feed_forward"]["down"] for gradient in gradients))


@pytest.mark.thorough
def test_the_linen_module_of_the_page_is_a_layer_that_decodes_as_it_trains(own_files):
    with new_process(), jax.numpy_rank_promotion("allow"):
        assert load(own_files / "mlp.py").get_config().model.feed_forward == "mlp:Mlp"
        model, params = small_model(feed_forward="mlp:Mlp", layers={"feed_forward": {"scale": 0.5}})
        assert model.spec["blocks"]["0"]["feed_forward"]["Dense_0"]["kernel"].axes == ("embed", "mlp")
        assert_consistent(model, params, {"inputs": random_tokens((3, 5))})


@pytest.mark.thorough
def test_the_nnx_module_of_the_page_is_a_model_that_learns(capsys):
    code = code_of("docs/flax.md")[1]
    with jax.numpy_rank_promotion("allow"):
        exec(code, {})
    (expected,) = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines()[-1] == expected


@pytest.mark.thorough
def test_the_linen_module_around_a_model_computes_what_the_model_does():
    names = {}
    exec(code_of("docs/flax.md")[2], names)
    (model, _), batch = small_model(), {"inputs": random_tokens((3, 5))}
    module = names["OfFxf"](model)
    variables = module.init(jax.random.key(0), batch)
    np.testing.assert_array_equal(
        jax.jit(module.apply)(variables, batch), jax.jit(model.apply)(variables["params"]["model"], batch)
    )


@pytest.mark.thorough
def test_the_attention_of_flax_goes_into_blocks_as_the_page_says():
    name = "MultiHeadDotProductAttention"
    model, params = small_model(blocks=f"flax.linen:{name}+feed_forward", layers={name: {"num_heads": 2}})
    with jax.numpy_rank_promotion("allow"):
        assert_consistent(model, params, {"inputs": random_tokens((3, 5))})


def test_the_idea_of_the_readme_may_attend_to_nothing(own_files):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 3, 5, 7)) * 9
    bias = np.where(rng.random((2, 1, 5, 7)) < 0.3, -np.inf, 0)
    with new_process():
        layer = load(own_files / "idea.py").OrNothing(small())
        found = jax.jit(functools.partial(layer.weigh, {}))(scores, np.broadcast_to(bias, scores.shape))
        assert_consistent(*small_model(attention="idea:OrNothing"), {"inputs": random_tokens((3, 5))})
    assert_close(found, np.exp(scores + bias) / (1 + np.exp(scores + bias).sum(-1, keepdims=True)))


@pytest.fixture
def sigmoid(tmp_path):
    """Executes the worked example of a kind of attention as a config file."""
    code = code_of("docs/extending.md")[0]
    (tmp_path / "mine.py").write_text(code)
    with new_process():
        assert load(tmp_path / "mine.py").get_config().model.attention == "mine:Sigmoid"
        yield


@pytest.mark.thorough
def test_the_worked_example_of_a_kind_of_attention_decodes_as_it_trains_and_reads_no_padding(sigmoid):
    choices = {"attention": "mine:Sigmoid", "window": 3, "positions": "alibi", "n_kv_heads": 1, "n_layers": 2}
    assert_consistent(*small_model(**choices, scan_blocks=True), {"inputs": random_tokens((3, 6))})
    source, n = random_tokens((3, 5), seed=1), np.array([[2], [5], [1]])
    batch = {"inputs": random_tokens((3, 6)), "source": source, "source_mask": np.arange(5)[None] < n}
    model = encoder_decoder(small(EncoderDecoderConfig, attention="mine:Sigmoid"), VOCAB_SIZE)
    params = random_params(model.spec)
    assert_padding_unread(model, params, batch)
    assert_rows_independent(model, params, batch)
