"""Run folders in a bucket."""

from experiments.hostile.case import case, refused
from experiments.hostile.fixtures import TRAIN_TEXT

# fmt: off

CASES = [
    *(
        case(f"{path} for {what}", command.replace("PATH", path), refused(path.split(":")[0]), runs=("reversal",))
        for path in ("s3://bucket/run", "http://example.org/run", "gs://bucket/run")
        for what, command in {
            "a run: train": "train @reversal --workdir=PATH",
            "a run: evaluate": "evaluate --workdir=PATH",
        }.items()
    ),
    case("a scheme with capitals", "train @reversal --workdir=S3://bucket/run", refused("S3://|s3://")),
    case("a scheme of files", "train @reversal --workdir=file:///tmp/run", refused("file:")),
    case("a scheme with one slash", "train @reversal --workdir=gs:/bucket/run", refused("gs:/")),
    case("s3:// for a run: generate", "generate --workdir=s3://bucket/run 1", refused("s3://")),
    case("s3:// for a run: probe", "probe --workdir=s3://bucket/run 1", refused("s3://")),
    case("s3:// for a run: export", "export --workdir=s3://bucket/run --format=jax", refused("s3://")),
    case("s3:// for a sweep", "sweep --config=points.py --workdir=s3://bucket/sweep", refused("s3://")),
    case("s3:// for a text", f"{TRAIN_TEXT} --config.data.path=s3://bucket/text", refused("s3:/")),
    case(
        "s3:// for weights", "export --workdir=reversal --format=safetensors --output=s3://bucket/x", refused("s3:/"),
    ),
    case(
        "s3:// for a picture",
        "probe --workdir=reversal --name=block_0/attention/weights --output=s3://bucket/x.png '1 2'", refused("s3:/"),
    ),
]
