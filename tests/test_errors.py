"""What a user gets wrong ends in one line on stderr that says how to mend it, and exit code 2."""

import shutil

import pytest

from fxf.errors import UserError
from fxf.runs.cli import read_lines
from small_runs import overrides, script


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("errors") / "run"
    finished = script("train", *overrides(), f"--workdir={workdir}")
    assert finished.returncode == 0, finished.stderr
    return workdir


def assert_one_line(finished, *parts):
    assert finished.returncode == 2, finished.stderr
    assert finished.stdout == ""
    (line,) = finished.stderr.splitlines()
    assert line.startswith("error: ")
    for part in parts:
        assert part in line


REVERSAL = "--config=configs/reversal.py"
CHARACTERS = "--config=configs/characters.py"
DOCUMENTS = "--config=configs/documents.py:json_lines"


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ([], ["--config: missing"]),
        (["--config=configs/reversl.py"], ["no file configs/reversl.py", "did you mean 'configs/reversal.py'?"]),
        (["--config", "configs/reversl.py"], ["no file configs/reversl.py"]),
        (["--config=config/reversal.py"], ["no file config/reversal.py; did you mean 'reversal'?"]),
        (["--config=reversl:example0"], ["no file and no config of fxf is named 'reversl'; did you mean 'reversal'?"]),
        (
            ["--config=configs/reversal.py:example9"],
            ["configs/reversal.py:", "'example9'", "example0"],
        ),
        ([REVERSAL], ["--workdir: missing"]),
        ([REVERSAL, "--wrkdir=x"], ["wrkdir", "workdir"]),
        ([REVERSAL, "--flagfile=README.md"], ["--flagfile: unknown flag"]),
        ([REVERSAL, "--undefok=x", "--x=3"], ["--undefok: unknown flag"]),
        ([REVERSAL, "--noonly_check_args"], ["only_check_args: unknown flag"]),
        ([REVERSAL, "--from", "--smoke"], ["--from: expected a value, got the flag '--smoke'"]),
        (
            [REVERSAL, "--config.model.n_layer=4"],
            ["--config.model.n_layer: unknown key; did you mean 'n_layers'? (model has: "],
        ),
        ([REVERSAL, "--config.modle.n_layers=4"], ["--config.modle.n_layers: unknown section; did you mean 'model'?"]),
        ([REVERSAL, "--config.model.n_layers=four"], ["--config.model.n_layers: expected int, got 'four'"]),
        ([REVERSAL, "--config.model.n_layers=2.5"], ["--config.model.n_layers: expected int, got '2.5'"]),
        ([REVERSAL, "--config.model=3"], ["--config.model: is a section; set its keys"]),
        ([REVERSAL, "--config.model.n_heads=3"], ["model.n_heads: 3 does not divide model.d_model 64"]),
        (
            [REVERSAL, "--config.task.name=reverse"],
            ["task.name: expected one of reversal, translation", "did you mean 'reversal'?"],
        ),
        ([REVERSAL, "--config.optimizer.name=adamm"], ["optimizer.name", "did you mean 'adam'?"]),
        (
            [REVERSAL, "--config.parallel.processes=0"],
            ["parallel.processes: 0 asks SLURM, Open MPI or a TPU pod, and none has started this process"],
        ),
        (
            [REVERSAL, "--config.model.attention_implementation=flash", "--config.model.dtype=bfloat16"],
            ["model.attention_implementation: flash needs an NVIDIA GPU or a TPU; the device here is cpu"],
        ),
        ([CHARACTERS, "--config.data.path=absent.txt"], ["data.path: absent.txt: No such file"]),
        ([DOCUMENTS, "--config.data.path=absent.jsonl"], ["data.path: absent.jsonl: No such file"]),
        ([DOCUMENTS, "--config.data.path=configs/reversal.py"], ["configs/reversal.py:1: not JSON: "]),
        ([DOCUMENTS, "--config.data.separator=x"], ["data.separator: data.format 'json_lines' does not read it"]),
    ],
)
def test_a_wrong_config(flags, parts, tmp_path):
    workdir = [] if not flags or flags == [REVERSAL] or "--wrkdir=x" in flags else [f"--workdir={tmp_path / 'run'}"]
    assert_one_line(script("train", *flags, *workdir), *parts)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("verb", "flag", "line"),
    [
        ("try", "--other=", "--other: expected a value, got ''"),
        ("evaluate", "--pairs=", "--pairs: expected a value"),
        ("generate", "--input=", "--input: expected a value"),
        ("sweep", "--points=", "--points: expected a value"),
        ("try", "--seeds=1", "--seeds: expected at least 2, got 1"),
        ("sweep", "--workers=-1", "--workers: expected at least 0, got -1"),
        ("sweep", "--together=0", "--together: expected at least 1, got 0"),
        ("sweep", "--dry_run=maybe", "--dry_run: expected bool, got 'maybe'"),
    ],
)
def test_a_wrong_flag(verb, flag, line, tmp_path):
    config = [REVERSAL] if verb in ("try", "sweep") else []
    assert_one_line(script(verb, *config, flag, f"--workdir={tmp_path}"), line)


def test_in_a_conversation_a_wrong_prompt_is_one_line_and_the_next_is_answered(trained):
    finished = script("generate", f"--workdir={trained}", "--interactive", stdin="1\nx\n3\n")
    assert finished.returncode == 0
    assert len(finished.stdout.splitlines()) == 2
    lines = [line for line in finished.stderr.splitlines() if not line.startswith("warning: ")]  # of answers cut off
    assert len(lines) == 1 and lines[0].startswith("error: prompt 1: ")
    assert_one_line(
        script("generate", f"--workdir={trained}", "--interactive", "1"), "--interactive: reads prompts from"
    )


def test_help_lists_the_flags_of_a_script():
    finished = script("generate", "--help")
    assert finished.returncode == 0
    assert all(flag in finished.stdout for flag in ("--workdir", "--beam_width", "--input", "fxf generate"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("def get_config():\n    return None\n", ["get_config returned no ConfigDict"]),
        ("def get_config():\n    return {}['x']\n", ["wrong.py:2:", "KeyError", "'x'"]),
        ("def get_config(:\n", ["wrong.py:1:", "SyntaxError"]),
        ("x = 1\n", ["wrong.py: no function get_config"]),
        ("x = 1\0\n", ["wrong.py: expected Python source, found a null byte"]),
        ("def get_config():\n    raise SystemExit(0)\n", ["wrong.py:2: SystemExit: 0"]),
        ("def get_config(a):\n    pass\n", ["wrong.py: TypeError: get_config() missing 1 required"]),
        ("import json\n\n\ndef get_config():\n    json.loads('')\n", ["wrong.py:5: JSONDecodeError", "decoder.py:"]),
        ("from fxf.runs.experiment import default_config\n\n\ndef get_config():\n"
         "    config = default_config('reversal')\n    config.model.layers = 3\n    return config\n",
         ["model.layers: unknown key", "did you mean 'n_layers'?"]),
    ],
)  # fmt: skip
def test_a_wrong_config_file(text, parts, tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(text)
    assert_one_line(script("train", f"--config={path}", f"--workdir={tmp_path / 'run'}"), *parts)


def test_a_workdir_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    assert_one_line(script("train", *overrides(), f"--workdir={tmp_path / 'file' / 'run'}"), "cannot write", "file/run")


def test_another_config_in_the_workdir(trained):
    finished = script("train", *overrides(model={"d_ff": 8}), f"--workdir={trained}")
    assert_one_line(finished, "holds another run: model.d_ff (7 there, 8 here)")


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("1 4", ["prompt 1: expected tokens 1 … 3", "'4'"]),
        ("one", ["prompt 1", "'one'"]),
        ("1 2 3 1 2 3 1 2 3 1 2 3", ["prompt 1: 13 tokens", "model.max_len is 11"]),
    ],
)
def test_a_wrong_prompt(trained, prompt, parts):
    assert_one_line(script("generate", f"--workdir={trained}", prompt), *parts)


def test_wrong_prompts_on_standard_input_are_numbered(trained):
    assert_one_line(script("generate", f"--workdir={trained}", stdin="1 2\n\n3 x\n"), "prompt 3", "'x'")


def test_no_prompt_at_all(trained):
    assert_one_line(script("generate", f"--workdir={trained}"), "no prompt")


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        (["--top_k=3"], ["decode.top_k", "decode.temperature"]),
        (["--beam_width=two"], ["beam_width", "'two'"]),
        (["--n_best=1"], ["n_best: only beam search scores its hypotheses", "decode.beam_width"]),
    ],
)
def test_a_decode_option_that_nothing_reads(trained, flags, parts):
    assert_one_line(script("generate", f"--workdir={trained}", *flags, "1"), *parts)


def test_a_file_of_prompts_that_cannot_be_read(trained, tmp_path):
    absent, wrong = tmp_path / "absent", tmp_path / "wrong"
    assert_one_line(script("generate", f"--workdir={trained}", f"--input={absent}"), f"--input: {absent}: No such file")
    wrong.write_bytes(b"1 2\n\n3 \xff\n")
    with pytest.raises(UserError, match=f"{wrong}:3: not UTF-8"):
        read_lines(str(wrong))


def test_lines_of_a_file_of_prompts_are_read_as_they_are(tmp_path):
    path = tmp_path / "prompts"
    for content, lines in {
        "": [],
        "\n": [""],
        "1 2\n\n3": ["1 2", "", "3"],
        " é \n\n": [" é ", ""],
        "\ufeff1": ["1"],
        "1\r\n\r\n2\r\r\n": ["1", "", "2\r"],
        "1\r2\r": ["1", "2"],
        "1\r2\u2028\x0b3\x0c\n": ["1\r2\u2028\x0b3\x0c"],
    }.items():
        path.write_bytes(content.encode())
        assert read_lines(str(path)) == lines


def test_a_folder_without_a_run(tmp_path):
    for name in ("evaluate", "generate"):
        assert_one_line(script(name, f"--workdir={tmp_path}", *["1"] * (name == "generate")), "no run here")


def test_a_run_without_a_checkpoint(trained, tmp_path):
    shutil.copy(trained / "config.json", tmp_path)
    assert_one_line(script("evaluate", f"--workdir={tmp_path}"), "no checkpoint yet; train the run first")


def test_a_step_without_a_checkpoint(trained):
    assert_one_line(script("evaluate", f"--workdir={trained}", "--step=3"), "no checkpoint of step 3", "[2, 4, 6]")


def test_a_damaged_config_json(trained, tmp_path):
    (tmp_path / "config.json").write_text('{"config": ')
    assert_one_line(script("evaluate", f"--workdir={tmp_path}"), "config.json: not a run's config")


def damage(folder):
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "digests.json":
            path.write_bytes(path.read_bytes()[:-5])


def test_all_checkpoints_damaged(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    for step in (2, 4, 6):
        damage(tmp_path / "run" / "checkpoints" / str(step))
    assert_one_line(script("evaluate", f"--workdir={tmp_path / 'run'}"), "every checkpoint is damaged (steps 2, 4, 6)")


def test_a_damaged_newest_checkpoint_falls_back_with_a_warning(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    damage(tmp_path / "run" / "checkpoints" / "6")
    finished = script("evaluate", f"--workdir={tmp_path / 'run'}")
    assert finished.returncode == 0
    assert finished.stdout.startswith("step 4  exact_match ")
    (line,) = finished.stderr.splitlines()
    assert line.startswith("warning: ")
    assert "skipping the damaged checkpoint of step 6" in line


@pytest.mark.thorough  # tests/sweeps/test_points.py has such a run, and tests/runs/test_run.py the line
def test_a_loss_that_is_not_finite(tmp_path):
    flags = overrides(optimizer={"name": "sgd", "learning_rate": 1e30}, log={"every": 1})
    finished = script("train", *flags, f"--workdir={tmp_path}")
    assert finished.returncode == 2
    assert "error: step " in finished.stderr.splitlines()[-1]
    assert "training stopped, checkpoints of earlier steps are kept" in finished.stderr.splitlines()[-1]
