"""Trained runs as models of lm-evaluation-harness, which is not among fxf's own requirements: pip install lm_eval.

python -m fxf.runs.lm_eval run --model fxf --model_args workdir=runs/words --tasks lambada_openai
python -m fxf.runs.lm_eval run --model fxf --model_args workdir=runs/words --tasks mine --include_path=tasks

The arguments are those of `lm_eval`. Of --model_args, `workdir` is the run folder, `step` a checkpoint, and
`add_bos_token` says whether a context begins with the token that begins a text in training, as it does by default.
"""

import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from fxf.base.errors import EXIT_USER_ERROR, UserError
from fxf.data.batches import padded
from fxf.runs.generation import Answering
from fxf.runs.loading import load
from fxf.runs.text_scores import TextScorer

NEW_TOKENS, USUAL = 256, {"repetition_penalty": 1.0, "temperature": 0.0, "top_p": 1.0, "top_k": 0}
READ = {*USUAL, "until", "max_gen_toks", "do_sample"}


@register_model("fxf")
class FxfLM(TemplateLM):
    """A run behind the harness's interface: log-probabilities of continuations and texts, and answers until a stop."""

    def __init__(self, workdir: str = "", step: int | None = None, add_bos_token: bool = True, **_: Any) -> None:
        """Loads the run; it ignores options of the harness for other kinds of models, such as the device.

        Raises:
          UserError: as `TextScorer`, or no run is named.
        """
        super().__init__()
        if not workdir:
            raise UserError("workdir: missing; for example --model_args workdir=runs/words")
        self.workdir, self.step = Path(workdir), step
        self.scorer = TextScorer(workdir, step)
        self.task = self.scorer.task
        self.prefix = self.task.inputs([])[0]
        self.task.first = self.task.first if add_bos_token else None
        self.max_length = self.task.config.length

    @property
    def eot_token_id(self) -> int:
        return self.task.end_token if self.task.end_token >= 0 else self.prefix_token_id

    @property
    def prefix_token_id(self) -> int:
        """The token in front of a text; where the run has none, that of a new line."""
        return self.prefix

    @property
    def tokenizer_name(self) -> str:
        return str(self.workdir)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        first = [self.prefix] * (self.task.first is not None and add_special_tokens is not False)
        return [*first, *self.task.tokenizer.encode(self.task.cased(string))]

    def _loglikelihood_tokens(self, requests: Sequence[Any], **_: Any) -> list[tuple[float, bool]]:
        """Returns the log-probability of each (…, context, continuation), and whether it is the greedy answer."""
        if (longest := max((len(new) for *_, new in requests), default=0)) > self.max_length:
            raise UserError(f"a continuation of {longest} tokens; {self.workdir} reads {self.max_length} (task.length)")
        found, alike = [(0.0, True)] * len(requests), defaultdict(list)
        for number, (_, context, new) in enumerate(requests):
            tokens = [*context, *new][-self.max_length - 1 :]
            size = min(1 << (len(tokens) - 1).bit_length(), self.max_length)  # few sizes: each one compiles
            alike[size].append((number, tokens, len(new)))
        for size, rows in alike.items():
            tokens_RT, _mask_RT = padded([tokens for _, tokens, _ in rows], len(rows), size + 1)
            logs_RT, greedy_RT = self.scorer.logs(tokens_RT[:, :-1], tokens_RT[:, 1:])
            for (number, tokens, n_new), logs_T, greedy_T in zip(rows, logs_RT, greedy_RT, strict=True):
                places = slice(max(len(tokens) - 1 - n_new, 0), len(tokens) - 1)
                found[number] = float(logs_T[places].sum()), bool(greedy_T[places].all())
        return found

    def loglikelihood_rolling(self, requests: Sequence[Any], **_: Any) -> list[float]:
        """Returns the log-probability of each text, in windows that the model can read, as the harness cuts them."""
        windows = []
        for number, request in enumerate(requests):
            tokens = self.tok_encode(request.args[0], add_special_tokens=False)
            for window in get_rolling_token_windows(tokens, self.prefix_token_id, self.max_length, 1):
                windows.append((number, *make_disjoint_window(window)))
        logs = [log for log, _ in self._loglikelihood_tokens(windows)]
        return np.bincount([number for number, *_ in windows], logs, len(requests)).tolist()

    def generate_until(self, requests: Sequence[Any], **_: Any) -> list[str]:
        """Returns the continuation of each context up to the first text of `until`, as the harness normalizes options.

        Of the options of sampling it reads those of `USUAL`; `top_p` and `top_k` only with a temperature. Requests of
        equal options are answered together, so that repeats of a context have draws of their own.

        Raises:
          UserError: an option is not read, such as `num_beams` above 1, or leaves no room for a context.
        """
        asked, answers = dict[Any, list[tuple[int, str]]](), [""] * len(requests)
        for number, request in enumerate(requests):
            context, options = request.args[0], normalize_gen_kwargs(request.args[1], NEW_TOKENS)
            if unread := {name for name, value in options.items() if (name, value) != ("num_beams", 1)} - READ:
                raise UserError(f"generation_kwargs: {min(unread)}: not read; expected {', '.join(sorted(READ))}")
            new = options["max_gen_toks"]
            if new >= self.max_length:
                raise UserError(f"max_gen_toks: {new} leave no room for a context among {self.max_length} tokens")
            kept = self.tok_encode(context, add_special_tokens=False)[-(self.max_length - new) :]
            prompt = self.task.tokenizer.decode(kept)
            while len(self.tok_encode(prompt, add_special_tokens=False)) > len(kept):
                prompt = prompt[1:]  # a cut character
            read = USUAL if options.get("temperature") else ["repetition_penalty", "temperature"]
            draws = tuple((key, type(USUAL[key])(options.get(key, USUAL[key]))) for key in read)
            asked.setdefault((draws, new, tuple(options["until"])), []).append((number, prompt))
        for (draws, new, until), prompts in asked.items():
            experiment, _step, params = load(self.workdir, self.step, dict(draws))
            answering = Answering(experiment._replace(task=self.task), params, new, 0, until)
            found = answering([prompt for _, prompt in prompts])
            for (number, prompt), each in zip(prompts, found, strict=True):
                answers[number] = each[0].text[len(prompt) :]
        return answers


def main() -> None:
    from lm_eval.__main__ import cli_evaluate

    try:
        cli_evaluate()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(EXIT_USER_ERROR)


if __name__ == "__main__":
    main()
