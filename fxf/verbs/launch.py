"""Prints a job that trains a config on a cluster, as a script for SLURM or a manifest for Kubernetes.

fxf launch slurm --config=translation --workdir=runs/translation --nodes=2 --gpus=8 --time=24:00:00 | sbatch
fxf launch k8s --config=translation --workdir=/runs/translation --nodes=2 --gpus=8 --image=fxf:latest --claim=runs > job
kubectl apply --filename=job

The job saves its step before its time is up. It restarts only after exit code 75, up to 100 times, and resumes. Its
processes share one folder of compiled programs. SLURM runs it in this folder with this Python, a process for each GPU.
Kubernetes runs a pod for each node, with the volume of --claim mounted at the parent folder of --workdir, where
commands run.
"""

import json
import re
import shlex
from argparse import Namespace
from pathlib import Path

from fxf.base.config import one_of
from fxf.base.errors import UserError
from fxf.verbs.flags import THIS_FXF, Parser, add_config, config_and_origin, require_workdir, whole

ARGUMENTS = "slurm or k8s"
TEMPLATES = {"slurm": "slurm.sh", "k8s": "k8s.yaml"}
READ_BY = {"time": "slurm", "image": "k8s", "claim": "k8s"}  # flags that only one kind of cluster reads
DAY = "24:00:00"
RESTARTS = 100  # of a pod; slurm.sh has its own limit


def flags(parser: Parser) -> None:
    add_config(parser)
    parser.flag("workdir", doc="the run folder, which all nodes can write")
    parser.flag("from", doc="the source of the weights, as for fxf train", dest="source")
    parser.flag("nodes", whole(1), 1, "number of nodes, or pods")
    parser.flag("gpus", whole(0), 1, "GPUs per node; 0: its CPU")
    parser.flag("cpus", whole(1), 8, "cores per process")
    parser.flag("time", doc=f"time limit of SLURM, after which the job is requeued; by default {DAY}")
    parser.flag("image", doc="Kubernetes: container image that has fxf")
    parser.flag("claim", doc="Kubernetes: volume claim that holds the run folder")


def main(args: Namespace) -> None:
    from fxf.runs.experiment import model_of, sections_of

    cluster = one_of(" ".join(args.arguments), TEMPLATES, "fxf launch")
    for name, reader in READ_BY.items():
        if reader != cluster and getattr(args, name):
            raise UserError(f"--{name}: only read with {reader}")
    config, origin = config_and_origin(args)
    model_of(sections_of(config))  # a wrong key is an error here, not after waiting for the machines
    workdir = require_workdir(args)
    train = ["train", f"--config={origin['config_file']}", f"--workdir={args.workdir}"]
    train += [f"--config.{key}={value}" for key, value in origin["overrides"].items()]
    train += [f"--from={args.source}"] if args.source else []
    name = f"fxf-{re.sub('[^a-z0-9]+', '-', workdir.name.lower())}"[:50].rstrip("-")
    values = {"name": name, "nodes": str(args.nodes), "cpus": str(args.cpus)}
    values |= _script(train, args) if cluster == "slurm" else _pods(name, train, args)
    text = Path(__file__).with_name(TEMPLATES[cluster]).read_text(encoding="utf-8")
    print(re.sub(r"@(\w+)@", lambda match: values[match[1]], text), end="")


def _script(train: list[str], args: Namespace) -> dict[str, str]:
    """Returns the values that replace @NAME@ in the script, by name."""
    if not re.fullmatch(r"(?!0+:0[0-4])\d+(:\d\d){2}|\d+-\d+(:\d\d){0,2}", args.time or DAY):
        raise UserError(f"--time: expected HOURS:MINUTES:SECONDS, at least 0:05:00, or DAYS-HOURS, got {args.time!r}")
    return {
        "tasks": str(max(args.gpus, 1)),
        "time": args.time or DAY,
        "gpus": f"SBATCH --gres=gpu:{args.gpus}" if args.gpus else " no GPU",
        "folder": shlex.quote(str(Path.cwd())),
        "command": shlex.join([*THIS_FXF, *train, "--config.parallel.processes=0"]),
    }


def _pods(name: str, train: list[str], args: Namespace) -> dict[str, str]:
    """Returns the values that replace @NAME@ in the manifest, by name, as JSON, which is valid YAML."""
    folder = Path(args.workdir).parent
    if not folder.is_absolute() or folder == Path("/"):
        raise UserError(f"--workdir: expected a folder in a mounted volume, such as /runs/NAME, got {args.workdir}")
    for flag in ("image", "claim"):
        if not getattr(args, flag):
            raise UserError(f"--{flag}: missing; k8s needs it")
    first, index = f"{name}-0.{name}:1234", "$(JOB_COMPLETION_INDEX)"
    keys = {"processes": args.nodes, "coordinator": first, "process": index} if args.nodes > 1 else {}
    values = {
        **{"image": args.image, "claim": args.claim, "folder": str(folder), "cache": str(folder / ".cache")},
        "command": ["fxf", *train, *(f"--config.parallel.{key}={value}" for key, value in keys.items())],
        **{"gpus": args.gpus, "restarts": RESTARTS * args.nodes},
    }
    return {key: json.dumps(value) for key, value in values.items()}
