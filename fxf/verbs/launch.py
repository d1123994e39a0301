"""Prints a job that trains a config on a cluster: a script for SLURM, or a manifest for Kubernetes.

fxf launch slurm --config=translation --workdir=runs/translation --nodes=2 --gpus=8 --time=24:00:00
fxf launch slurm --config=translation --workdir=runs/translation --nodes=2 --gpus=8 --submit
fxf launch k8s --config=translation --workdir=/runs/translation --nodes=2 --gpus=8 --image=fxf:latest --claim=runs

--submit hands it to sbatch or kubectl; without it, `fxf launch … > job` keeps it to be changed. The job saves its step
before its time is up, starts again after exit code 75 alone, up to 100 times, and resumes. Its processes share one
folder of compiled programs. SLURM runs it in this folder with this Python, a process for each GPU. Kubernetes has a pod
for each node; the volume of --claim is mounted on the folder that holds --workdir, and commands run there.
"""

import json
import re
import shlex
import subprocess
from argparse import Namespace
from pathlib import Path
from typing import Any

from fxf.config import one_of
from fxf.errors import UserError
from fxf.verbs.flags import Parser, add_config, config_and_origin, require_workdir, whole

ARGUMENTS = "slurm or k8s"
SUBMIT = {"slurm": ["sbatch"], "k8s": ["kubectl", "apply", "--filename=-"]}
TEMPLATES = {"slurm": "slurm.sh", "k8s": "k8s.yaml"}
OF_ONE = {"time": "slurm", "image": "k8s", "claim": "k8s"}  # flags that only one cluster reads
RESTARTS, PORT = 100, 1234


def flags(parser: Parser) -> None:
    add_config(parser)
    parser.flag("workdir", doc="the run folder, which all nodes can write")
    parser.flag("from", doc="the source of the weights, as of fxf train", dest="source")
    parser.flag("nodes", whole(1), 1, "nodes, or pods")
    parser.flag("gpus", whole(0), 1, "GPUs of a node; 0: its CPU")
    parser.flag("cpus", whole(1), 8, "cores of a process")
    parser.flag("time", doc="limit of SLURM, after which the job goes back to the queue; by default 24:00:00")
    parser.flag("image", doc="image of Kubernetes that has fxf")
    parser.flag("claim", doc="volume claim of Kubernetes that holds the run folder")
    parser.switch("submit", "submit the job")


def main(args: Namespace) -> None:
    cluster = one_of(" ".join(args.arguments), SUBMIT, "fxf launch")
    for name, reader in OF_ONE.items():
        if reader != cluster and getattr(args, name):
            raise UserError(f"--{name}: only read with {reader}")
    job = job_of(cluster, args)
    if not args.submit:
        print(job, end="")
        return
    try:
        done = subprocess.run(SUBMIT[cluster], input=job, text=True, capture_output=True)
    except FileNotFoundError:
        raise UserError(f"--submit: this machine has no {SUBMIT[cluster][0]}") from None
    if done.returncode:
        raise UserError(f"{SUBMIT[cluster][0]}: {done.stderr.strip()}")
    print(done.stdout, end="")


def job_of(cluster: str, args: Namespace) -> str:
    """Returns the script or the manifest."""
    from fxf.sweeps.workers import this_fxf

    _, origin = config_and_origin(args)
    workdir = require_workdir(args)
    train = ["train", f"--config={origin['config_file']}", f"--workdir={args.workdir}"]
    train += [f"--config.{key}={value}" for key, value in origin["overrides"].items()]
    train += [f"--from={args.source}"] if args.source else []
    name = "fxf-" + re.sub("[^a-z0-9]+", "-", workdir.name.lower()).strip("-")[:40]
    values: dict[str, Any] = {"name": name, "nodes": args.nodes, "cpus": args.cpus}
    if cluster == "slurm":
        values |= {"tasks": max(args.gpus, 1), "time": args.time or "24:00:00"}
        values["gpus"] = f"SBATCH --gres=gpu:{args.gpus}" if args.gpus else " no GPU"
        values["folder"] = shlex.quote(str(Path.cwd()))
        values["command"] = shlex.join([*this_fxf(), *train, "--config.parallel.processes=0"])
    else:
        values |= _pods(name, train, args)
    template = Path(__file__).with_name(TEMPLATES[cluster]).read_text(encoding="utf-8")
    return re.sub(r"@(\w+)@", lambda found: str(values[found[1]]), template)


def _pods(name: str, train: list[str], args: Namespace) -> dict[str, Any]:
    """Returns what stands in a manifest; texts are JSON, which YAML reads."""
    folder = Path(args.workdir).parent
    if not folder.is_absolute() or folder == Path("/"):
        raise UserError(f"--workdir: expected a folder below that of a volume, as /runs/NAME, got {args.workdir}")
    for flag in ("image", "claim"):
        if not getattr(args, flag):
            raise UserError(f"--{flag}: missing; k8s needs it")
    if args.nodes > 1:
        of_pod = {
            "processes": args.nodes,
            "coordinator": f"{name}-0.{name}:{PORT}",
            "process": "$(JOB_COMPLETION_INDEX)",
        }
        train = [*train, *(f"--config.parallel.{key}={value}" for key, value in of_pod.items())]
    texts = {"image": args.image, "claim": args.claim, "folder": str(folder), "cache": str(folder / ".cache")}
    return {
        **{key: json.dumps(text) for key, text in texts.items()},
        "command": json.dumps(["fxf", *train]),
        "gpus": args.gpus,
        "restarts": RESTARTS * args.nodes,
    }
