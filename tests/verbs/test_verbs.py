"""The command `fxf`: verbs, messages, answers, and cluster jobs; tests/mistakes.txt has mistyped commands."""

import dataclasses
import json
import re
import subprocess
import sys

import pytest
import yaml

from fxf.base.errors import why_not_ours
from fxf.tasks.prompts import Answer
from fxf.training.parallel import ParallelConfig
from fxf.verbs import VERBS
from fxf.verbs import flags as cli
from fxf.verbs.generate import answer_lines, print_as_it_comes
from helpers import table
from small_runs import ROOT, command, script


def test_without_a_verb_fxf_lists_all_verbs_with_a_line_each_and_imports_no_library():
    modules = {path.stem for path in (ROOT / "fxf/verbs").glob("*.py")}
    assert modules - {"__init__", "command", "flags"} == set(VERBS)
    heavy = "{'jax', 'numpy', 'absl', 'ml_collections'}"
    program = f"import sys; import fxf.__main__ as m; m.main(); assert not {heavy} & set(sys.modules)"
    for arguments in ([], ["--help"]):
        run = [sys.executable, "-c", program, *arguments]
        done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=600)
        assert (done.returncode, done.stderr) == (0, "")
        lines = [line for line in done.stdout.splitlines() if line.startswith("  fxf ")]
        assert [line.split()[1] for line in lines] == list(VERBS)
        assert all(len(line.split()) > 5 and line.endswith(".") and len(line) < 120 for line in lines)


@pytest.mark.thorough
def test_a_verb_finds_a_shipped_config_in_any_folder_and_imports_only_needed_libraries(tmp_path):
    """Libraries for data sets, checkpoints, logs, plots and text scores are imported where they are used."""
    program = (
        "import sys; sys.argv = ['fxf', 'describe', '--config=reversal:example0', '--config.model.n_layers=1'];"
        "import fxf.__main__ as m; m.main();"
        "unused = {'grain', 'matplotlib', 'orbax', 'sacrebleu', 'tensorboardX', 'tensorflow_datasets'};"
        "assert not unused & set(sys.modules), unused & set(sys.modules)"
    )
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    assert "11 x 128" in done.stdout
    assert "--workdir" in script("help", "train", cwd=tmp_path).stdout


def test_a_missing_library_is_named_with_the_extra_that_installs_it():
    lacking = ModuleNotFoundError("No module named 'safetensors'", name="safetensors.numpy")
    compiler = ModuleNotFoundError("No module named 'libtpu'", name="libtpu")
    assert why_not_ours(compiler) == "libtpu is not installed: pip install libtpu"
    assert why_not_ours(lacking) == "safetensors is not installed: pip install safetensors"
    assert why_not_ours(ModuleNotFoundError("of a user's own", name="mine")) == ""


ANSWERS = [[("a\nb\\\x1b[31m\u2028é", -0.5, False), ("c", -1.25, True)], [("", -2.0, True)]]


def test_a_long_message_loses_its_middle_and_its_line_ends():
    finished = command("describe", "--config=configs/reversal.py", f"--config.model.activation=x\n{'y' * 5000}z")
    assert (finished.returncode, finished.stdout) == (2, "")
    (line,) = finished.stderr.splitlines()
    assert line.startswith("error: model.activation: expected one of") and len(line) < 1100
    assert all(part in line for part in (r"'x\n", "yyy … yyy", "yyyz'"))


def test_every_answer_is_one_line_whatever_it_contains(capsys):
    assert list(answer_lines(ANSWERS, None, as_json=False)) == [r"a\nb\\\x1b[31m\u2028é", ""]
    best = ["1\t-0.5000\t" + r"a\nb\\\x1b[31m\u2028é", "1\t-1.2500\tc", "2\t-2.0000\t"]
    assert list(answer_lines(ANSWERS, 2, as_json=False)) == best
    last = print_as_it_comes(Answer(text, None) for text in ("", "a", "ab\n", "ab\nab\nc", "é"))
    assert (last.text, capsys.readouterr().out) == ("é", "ab\\nab\\nc\né\n")  # the last began otherwise


def test_an_answer_as_json_has_its_exact_text():
    first, second = (json.loads(line) for line in answer_lines(ANSWERS, None, as_json=True))
    assert first == {"prompt": 1, "text": ANSWERS[0][0][0], "cut_off": False}
    assert second == {"prompt": 2, "text": "", "cut_off": True}
    lines = list(answer_lines(ANSWERS, 2, as_json=True))
    assert [json.loads(line)["score"] for line in lines] == [-0.5, -1.25, -2.0]
    assert not any("\n" in line or "\x1b" in line for line in lines)


FIGURES = {"task": "reversal", "train_loss": 0.123456789, "steps": 7}


def test_metrics_are_a_line_or_an_object_on_request(capsys):
    cli.print_figures(FIGURES)
    assert capsys.readouterr().out == "task reversal  train_loss 0.123457  steps 7\n"
    cli.print_figures(FIGURES, as_json=True)
    assert json.loads(capsys.readouterr().out) == FIGURES


KEYS = {field.name for field in dataclasses.fields(ParallelConfig)}
K8S = ("--image=registry/fxf:1", "--claim=runs", "--workdir=/runs/My_run")


def printed(cluster, *flags):
    done = command("launch", cluster, "--config=reversal:example0", *flags)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def executable(folder, name, text):
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture(scope="module")
def sbatch():
    return printed("slurm", "--workdir=runs/my run", "--nodes=2", "--gpus=8", "--config.model.gated", "--from=a b")


def test_a_script_requests_the_nodes_and_trains_the_given_config(sbatch):
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", sbatch, re.MULTILINE))
    assert {"nodes": "2", "ntasks-per-node": "8", "gres": "gpu:8", "cpus-per-task": "8"}.items() <= asked.items()
    assert asked["job-name"] == "fxf-my-run" and asked["signal"] == "TERM@120"
    assert "-m fxf train --config=reversal:example0 '--workdir=runs/my run' --config.model.gated=True " in sbatch
    assert "'--from=a b' --config.parallel.processes=0\n" in sbatch
    assert "gres" not in printed("slurm", "--workdir=run", "--gpus=0")


@pytest.mark.parametrize(("job", "said"), table("ends of a job"))
def test_a_job_requeues_only_after_a_save_and_not_forever(job, said, sbatch, tmp_path):
    code, restarts = job.values()
    executable(tmp_path, "srun", f"exit {code}")
    executable(tmp_path, "scontrol", "echo $*")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_RESTART_COUNT": restarts, "SLURM_JOB_ID": "12"}
    done = subprocess.run(["bash"], input=sbatch, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout == (f"exit code {code}: {said}\nrequeue 12\n" if said else "")


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_manifest_has_a_pod_per_node_and_the_first_is_the_coordinator(nodes):
    service, job = yaml.safe_load_all(printed("k8s", *K8S, f"--nodes={nodes}", "--gpus=4", "--config.task.n_tokens=9"))
    (name,) = {part["metadata"]["name"] for part in (service, job)}
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert name == "fxf-my-run" == pod["subdomain"] == service["spec"]["selector"]["job-name"]
    assert spec["completions"] == spec["parallelism"] == nodes
    assert spec["podFailurePolicy"]["rules"][-1]["onExitCodes"]["values"] == [75]
    (container,) = pod["containers"]
    assert container["resources"] == {"requests": {"cpu": 8}, "limits": {"nvidia.com/gpu": 4}}
    assert {"/runs"} == {container["workingDir"], *(mount["mountPath"] for mount in container["volumeMounts"])}
    words = container["command"]
    assert words[:2] == ["fxf", "train"] and "--config.task.n_tokens=9" in words
    of_pod = dict(re.findall(r"--config\.parallel\.(\w+)=(\S+)", " ".join(words)))
    found = {"processes": "3", "coordinator": f"{name}-0.{name}:1234", "process": "$(JOB_COMPLETION_INDEX)"}
    assert of_pod == (found if nodes > 1 else {}) and of_pod.keys() <= KEYS
