"""What `fxf launch` prints and submits; tests/cluster/run.sh trains by it under SLURM."""

import dataclasses
import re
import subprocess

import pytest
import yaml

from fxf.training.parallel import ParallelConfig
from small_runs import command

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
def script():
    return printed("slurm", "--workdir=runs/my run", "--nodes=2", "--gpus=8", "--config.model.gated", "--from=a b")


def test_a_script_asks_for_the_nodes_and_trains_what_was_said(script):
    asked = dict(re.findall(r"^#SBATCH --([\w-]+)=(.*)$", script, re.MULTILINE))
    assert {"nodes": "2", "ntasks-per-node": "8", "gres": "gpu:8", "cpus-per-task": "8"}.items() <= asked.items()
    assert asked["job-name"] == "fxf-my-run" and asked["signal"] == "TERM@120"
    assert "-m fxf train --config=reversal:example0 '--workdir=runs/my run' --config.model.gated=True " in script
    assert "'--from=a b' --config.parallel.processes=0\n" in script
    assert "gres" not in printed("slurm", "--workdir=run", "--gpus=0")


@pytest.mark.parametrize(
    ("code", "restarts", "again"),
    [(75, "0", True), (75, "100", False), *((code, "0", False) for code in (0, 2, 137))],
)
def test_a_job_goes_back_to_the_queue_only_when_it_has_saved_and_not_for_ever(code, restarts, again, script, tmp_path):
    executable(tmp_path, "srun", f"exit {code}")
    executable(tmp_path, "scontrol", "echo $*")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_RESTART_COUNT": restarts, "SLURM_JOB_ID": "12"}
    done = subprocess.run(["bash"], input=script, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout == (f"exit code {code}: back to the queue\nrequeue 12\n" if again else "")


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_manifest_has_a_pod_for_each_node_which_meet_at_the_first(nodes):
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
