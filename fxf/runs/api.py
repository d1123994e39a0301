"""What `import fxf` gives for runs: training in a run folder, and loading a trained run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from fxf.base.config import Field, checked, defaults
from fxf.base.errors import UserError, require_keywords
from fxf.base.files import folder_at
from fxf.base.weights import Params, count
from fxf.models.decode_config import DecodeConfig
from fxf.models.model import Model
from fxf.reports.run_files import FROM, read
from fxf.runs import configs, probe, run
from fxf.runs.experiment import Experiment
from fxf.runs.generation import Answering, warn_of_cut_off
from fxf.runs.warm_start import config_from
from fxf.tasks.prompts import Answer
from fxf.training.trackers import OnRecord


def train(
    config: str | Path | ConfigDict | Mapping[str, Any],
    workdir: str | Path,
    start: str | Path | None = None,
    on_record: OnRecord | None = None,
) -> dict[str, Any]:
    """Trains the run in `workdir`, or resumes it from its newest checkpoint, as `fxf train` does.

    The run records the paths and digests of the files that the config names.

    Args:
      config: FILE[:ARGUMENT] or NAME[:ARGUMENT], or every key of every section, as `read_config` returns it.
      workdir: the run folder.
      start: the source of the weights, as `--from` of `fxf train`: RUN, RUN:STEP, a safetensors file, or a folder of
        transformers. The model and the tokenizer are then those of the source, if it has them.
      on_record: `on_record(step, metrics)` is called with each record of training and of a validation. An exception
        in it ends the training, which the same call resumes from its newest checkpoint.

    Returns:
      The metrics of result.json.

    Raises:
      UserError: the config is wrong, the folder holds another run, the loss is not finite, or the disk is full.
    """
    plain, origin = plain_config(config)
    if start is not None:
        plain, origin = config_from(plain, str(start), folder_at(workdir, "workdir")), {**origin, FROM: str(start)}
    return run.train(plain, workdir, origin, on_record=on_record)


def plain_config(config: str | Path | ConfigDict | Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns a config as plain dicts, and what config.json says of its origin."""
    if isinstance(config, str | Path):
        return configs.read_config(config).to_dict(), configs.origin_of(str(config), {})
    if not isinstance(config, ConfigDict | Mapping):
        raise UserError(f"config: expected FILE[:ARGUMENT], or a config as read_config returns it, got {config!r}")
    origin = vars(config).get(configs.ORIGIN, {}) if isinstance(config, ConfigDict) else {}
    configs.load_file(origin)
    return config.to_dict() if isinstance(config, ConfigDict) else dict(config), origin


class Run(NamedTuple):
    """A trained run.

    Attributes:
      experiment: the task, the model and the other parts that the run's config names.
      step: the step of the checkpoint.
      params: a nested dict of arrays.
      folder: the run folder.
    """

    experiment: Experiment
    step: int
    params: Params
    folder: Path = Path()

    def __repr__(self) -> str:
        """Returns one line, where a notebook would print all weights."""
        names = [self.experiment.config[section]["name"] for section in ("task", "model")]
        return f"Run({', '.join(names)}, step {self.step}, {count(self.model.spec):,} weights)"

    @property
    def model(self) -> Model:
        return self.experiment.model

    @property
    def config(self) -> ConfigDict:
        """The config with every key of every section, as `read_config` returns one."""
        return ConfigDict(self.experiment.config).lock()

    @property
    def result(self) -> dict[str, Any]:
        """The metrics of result.json; empty until the run has finished."""
        return read(self.folder).result

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The records of metrics.jsonl so far, in order, each with its `step`: `pandas.DataFrame(run.metrics)`."""
        return read(self.folder).metrics

    def generate(
        self, texts: Sequence[str], *, max_tokens: int = 0, seed: int = 0, stop: Sequence[str] = ()
    ) -> list[str]:
        """Returns the best answer to each prompt, in order. It warns of answers that were cut off before their end.

        Arguments and errors are those of `answers`.
        """
        found = self.answers(texts, max_tokens=max_tokens, seed=seed, stop=stop)
        warn_of_cut_off(found)
        return [hypotheses[0].text for hypotheses in found]

    def answers(
        self, texts: Sequence[str], *, max_tokens: int = 0, seed: int = 0, stop: Sequence[str] = ()
    ) -> list[list[Answer]]:
        """Returns the answers to each prompt, in order: the hypotheses of a beam, the best first, or the only one.

        An answer has `text`, `score` (None without a beam), and `cut_off`: whether it reached its largest number of
        tokens before its end.

        Args:
          max_tokens: maximum number of new tokens; 0 for as many as the model's positions, or a translation's
            data.max_length, allow.
          seed: the seed of sampling, which a temperature above 0 turns on.
          stop: texts, or one; an answer ends before whichever of them is complete in it first.

        Raises:
          UserError: the task cannot read a text, or the model cannot hold it; the line gives its number.
        """
        several = list(texts)
        if isinstance(texts, str) or not all(isinstance(text, str) for text in several):
            raise UserError(f"texts: expected a list of texts, got {texts!r}")
        return Answering(self.experiment, self.params, max_tokens, seed, stop)(several) if several else []

    def with_model(self, model: Model) -> "Run":
        """Returns the run with another model of the same params, such as an edited one, which compiles anew."""
        return self._replace(experiment=self.experiment._replace(model=model, programs=defaultdict(dict)))

    def with_draft(self, smaller: "Run", n_tokens: int = 4) -> "Run":
        """Returns the run with speculative decoding: a smaller run drafts tokens, and one step of this run checks them.

        Greedy answers stay the same, and samples have the same distribution.

        Raises:
          UserError: their tokens are not the same, or `n_tokens` is below 1.
        """
        mine, its = self.experiment.task, smaller.experiment.task
        if (type(mine), mine.vocab_size, mine.files) != (type(its), its.vocab_size, its.files):
            raise UserError("draft: expected a run of the same task, with the same tokens")
        draft = smaller.model, smaller.params, checked(n_tokens, Field(int, {"minimum": 1}), "n_tokens")
        return self._replace(experiment=self.experiment._replace(draft=draft, programs=defaultdict(dict)))

    def evaluate(self) -> dict[str, Any]:
        """Returns the metrics of the task's test with these params, as `fxf evaluate` does.

            run._replace(params=averaged).evaluate()

        Raises:
          UserError: the data differ from those of the training.
        """
        figures = run.scored(self.folder, self.experiment, self.params)
        return {name: value for name, value in figures.items() if name not in ("samples", "answers")}

    def probe(self, prompt: str, answer: str | None = None) -> probe.Reading:
        """Returns the arrays inside the model while it reads a prompt and an answer, by default its own.

            inside = run.probe("3 1")
            inside.arrays["block_1/attention/weights"]  # [1, H, T, T]
            inside.matrices("block_1/attention/weights").values  # [H, T, T], with the tokens of both sides

        Raises:
          UserError: the task cannot read a text, or the model cannot hold it.
        """
        if not isinstance(prompt, str):
            raise UserError(f"prompt: expected a text, got {prompt!r}")
        return probe.read(self.experiment, self.params, prompt, answer)


def load(workdir: str | Path, step: int | None = None, **decode: Any) -> Run:
    """Loads a trained run.

        run = fxf.load("runs/example0", temperature=0.8)
        run.generate(["3 1"])
        run.model.apply(run.params, {"inputs": tokens_BT})

    Args:
      workdir: the run folder.
      step: the step of the checkpoint; by default the one that the run's result used.
      decode: keys of the config's `decode` section to change, such as `temperature` and `beam_width`.

    Raises:
      UserError: there is no run, no such checkpoint or no undamaged one, a `decode` key is wrong, or a file that
        the config names is missing.
    """
    require_keywords(load, decode, defaults(DecodeConfig))
    return Run(*run.load(workdir, step, decode), folder_at(workdir, "workdir"))
