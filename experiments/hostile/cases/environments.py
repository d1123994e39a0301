"""Variables, streams and rights of the process."""

from experiments.hostile.case import accepted, case, refused, refused_at_last, unread
from experiments.hostile.fixtures import EVALUATE, TRAIN, TRAIN_PAIRS

# fmt: off

CASES = [
    case("a device that is not here", TRAIN, refused("cuda"), env={"JAX_PLATFORMS": "cuda"}),
    case("a device that is not here: evaluate", EVALUATE, refused("tpu"), env={"JAX_PLATFORMS": "tpu"}),
    case("a device that is none", "describe @reversal", refused("quantum"), env={"JAX_PLATFORMS": "quantum"}),
    case("devices in no number", TRAIN, refused("JAX_NUM_CPU_DEVICES"), env={"JAX_NUM_CPU_DEVICES": "two"}),
    case("a flag that XLA lacks", TRAIN, refused("XLA_FLAGS"), env={"XLA_FLAGS": "--xla_no_such_flag=1"}),
    case("no compiling", EVALUATE, refused("JAX_DISABLE_JIT"), env={"JAX_DISABLE_JIT": "1"}),
    case("too many devices", EVALUATE, refused("JAX_NUM_CPU_DEVICES"), env={"JAX_NUM_CPU_DEVICES": "100000"}),
    case(
        "too many devices of XLA", EVALUATE, refused("XLA_FLAGS"),
        env={"XLA_FLAGS": "--xla_force_host_platform_device_count=100000"},
    ),
    case("types of 64 bits", TRAIN, refused("JAX_ENABLE_X64"), env={"JAX_ENABLE_X64": "1"}),
    case("no home", EVALUATE, accepted("exact_match"), env={"HOME": None}),
    case("a home that is not there", EVALUATE, accepted("exact_match"), env={"HOME": "/nowhere"}),
    case("prepared data in a file", TRAIN_PAIRS, refused("text.txt"), env={"TFDS_DATA_DIR": "text.txt"}),
    case(
        "prepared data where nothing can be written", TRAIN_PAIRS, refused("/proc"),
        env={"TFDS_DATA_DIR": "/proc/data"},
    ),
    case(
        "a language without letters", "train @six --workdir=new", accepted("bleu"),
        env={"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ),
    case(
        "an output of ASCII", "generate --workdir=six 'good morning'", accepted(lines=1),
        env={"PYTHONIOENCODING": "ascii"},
    ),
    case("no git", TRAIN, accepted("exact_match"), env={"PATH": "/nowhere"}),
    case(
        "a plotting backend that is none",
        "probe --workdir=reversal --name=block_0/attention/weights --output=x.png '1 2'", accepted("x.png"),
        env={"MPLBACKEND": "quantum"},
    ),
    case("no asserts", EVALUATE, accepted("exact_match"), env={"PYTHONOPTIMIZE": "2"}),
    case("stdout closed", EVALUATE, refused("stdout|standard output"), stdout="closed"),
    case("stdout on a full disk: evaluate", EVALUATE, refused("stdout|standard output"), stdout="full"),
    case(
        "stdout on a full disk: train", TRAIN, refused_at_last("stdout|standard output"), stdout="full",
        writes="^new",
    ),
    case("stdout on a full disk: help", "train --help", refused("stdout|standard output"), stdout="full"),
    case(
        "a pipe that nobody reads: generate", "generate --workdir=reversal 1 2 3", unread(),
        stdout="broken pipe",
    ),
    case(
        "a pipe that nobody reads: describe", "describe @reversal", unread(),
        stdout="broken pipe",
    ),
    case(
        "a pipe that nobody reads: probe", "probe --workdir=reversal --lens '1 2'", unread(),
        stdout="broken pipe",
    ),
    case(
        "flags in a real process", "train @reversal --config.model.n_layer=3 --workdir=new", refused("model.n_layer"),
        own_process=True,
    ),
]
