"""Rows of decoding: cached steps, beam search and `generate`, in batches and one at a time, also on real sentences.

Searches by the same rule must find the same before they are timed.
"""

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments.benchmarks.rows import Row, Rows, Settings, Way
from experiments.benchmarks.rows_training import TINY, TINY_VOCAB_SIZE, drawn, random_pairs
from fxf.base.devices import require_devices
from fxf.base.errors import UserError
from fxf.base.weights import Params
from fxf.data.tokenizer import EOS, TOKENIZER_FILE
from fxf.data.tokenizer_file import read_tokenizer_file
from fxf.interop import huggingface
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.model import Model
from fxf.runs import run
from fxf.runs.evaluator import Evaluators
from fxf.tasks.prompts import in_order_of_texts

# Marian at Tiny's size. With its default init_std, a random model repeats one token, and all scores are close.
MARIAN: dict[str, Any] = {
    **{"d_model": 128, "activation_function": "relu", "max_position_embeddings": 64, "scale_embedding": True},
    **{"pad_token_id": 0, "decoder_start_token_id": 0, "forced_eos_token_id": None, "init_std": 0.3},
    **{f"{side}_{what}": 4 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")},
    **{"encoder_ffn_dim": 256, "decoder_ffn_dim": 256},
}
BEAM_WIDTH, MAX_TOKENS = 5, 24
TOGETHER, ALONE = 64, 16  # sentences per batch, and sentences translated one at a time
NO_END = -1  # not a token, so all ways take the same number of steps

Search = Callable[[slice], np.ndarray]  # returns the tokens of the best hypotheses for sentences of the batch


def search_of(model: Model, params: Params, batch: dict[str, Any]) -> Search:
    """Returns fxf's beam search."""
    require_devices()
    decode = Decoder(model, NO_END, config=DecodeConfig(beam_width=BEAM_WIDTH))

    def search(rows: slice) -> np.ndarray:
        source = {name: batch[name][rows] for name in ("source", "source_mask")}
        n = len(source["source"])
        prompts = {**source, "tokens": np.zeros((n, 0), np.int32), "lengths": np.zeros(n, np.int32)}
        return decode(params, prompts, MAX_TOKENS)[0][:, 0]

    return search


def search_rows(what: str, searches: dict[str, Callable[[], Search]], settings: Settings) -> Iterator[Row]:
    """Yields a row for a batch and a row for single sentences. The first search is fxf's."""
    n = 8 if settings.quick else TOGETHER

    def way(make: Callable[[], Search], groups: list[slice]) -> Way:
        search = make()
        return Way(lambda: [search(rows) for rows in groups], lambda: search(slice(n)))

    def agreement(facts: dict[str, Any]) -> str:
        ours, *_ = facts.values()
        for name, theirs in facts.items():
            same = (ours == theirs).mean()
            # Near ties between hypotheses may break either way.
            assert same > 0.9, f"{name}: only {same:.1%} of the tokens are the same"
        return ""

    alone = [slice(i, i + 1) for i in range(ALONE)]
    for title, groups in {f"{n} sentences at a time": [slice(n)], "alone": alone}.items():
        ways = {name: functools.partial(way, make, groups) for name, make in searches.items()}
        amount = sum(rows.stop - (rows.start or 0) for rows in groups)
        yield Row(f"{what}, {title}", "sentences/s", amount, ways, agreement)


def ctranslators(settings: Settings) -> dict[str, int]:
    """Returns CTranslate2's ways by name, with the number of batches that each translates in parallel."""
    several = {"CTranslate2, a core for each batch": settings.threads} if settings.threads > 1 else {}
    return {"CTranslate2": 1, **several}


def beam(settings: Settings) -> Iterator[Row]:
    """Beam search with 5 hypotheses at Transformer-Tiny's size, 24 tokens each, beside CTranslate2."""
    model, batch = encoder_decoder(TINY, TINY_VOCAB_SIZE), random_pairs(TOGETHER, 16, TINY_VOCAB_SIZE)

    def of_ctranslate2(batches: int) -> Search:
        from experiments.benchmarks.peers_ctranslate2 import CTranslator

        translator = CTranslator(TINY, drawn(model), settings.threads, batches)

        def search(rows: slice) -> np.ndarray:
            sources = batch["source"][rows].tolist()
            options = {"max_tokens": MAX_TOKENS, "least": MAX_TOKENS, "at_once": -(-len(sources) // batches)}
            return np.array(translator.beam_search(sources, width=BEAM_WIDTH, **options))

        return search

    searches: dict[str, Callable[[], Search]] = {"fxf": lambda: search_of(model, drawn(model), batch)}
    for name, batches in ctranslators(settings).items():
        searches[name] = functools.partial(of_ctranslate2, batches)
    yield from search_rows("beam of 5", searches, settings)


def generate(settings: Settings) -> Iterator[Row]:
    """The same beside `generate` of Hugging Face's transformers, with the weights of its Marian model."""
    batch = random_pairs(TOGETHER, 16, TINY_VOCAB_SIZE)

    def marian() -> Any:
        import torch
        import transformers

        torch.set_num_threads(settings.threads)
        torch.manual_seed(0)
        return transformers.MarianMTModel(transformers.MarianConfig(vocab_size=TINY_VOCAB_SIZE, **MARIAN)).eval()

    def ours() -> Search:
        with tempfile.TemporaryDirectory() as folder:
            marian().save_pretrained(folder)
            loaded = huggingface.load(folder)
        return search_of(loaded.model, loaded.params, batch)

    def of_transformers() -> Search:
        import torch

        model = marian()

        @torch.inference_mode()
        def search(rows: slice) -> np.ndarray:
            source, counts = torch.tensor(batch["source"][rows]).long(), torch.tensor(batch["source_mask"][rows]).long()
            options = {"num_beams": BEAM_WIDTH, "max_new_tokens": MAX_TOKENS, "early_stopping": True}
            found = model.generate(source, attention_mask=counts, eos_token_id=None, do_sample=False, **options)
            return found[:, 1:].numpy()

        return search

    yield from search_rows("generate", {"fxf": ours, "transformers": of_transformers}, settings)


def require_peers(config: EncoderDecoderConfig, run: str) -> None:
    """Raises a UserError if the peers do not support the run's model."""
    wanted = {"positions": "sinusoidal", "embeddings": "shared", "block": "pre_norm"}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            got = f"{run} has {getattr(config, name)!r}"
            raise UserError(f"--run: expected a run with model.{name} {value!r}, as the peers have; {got}")


class Sentences:
    """Translation of real sentences by a trained run: as `fxf generate` does in fxf, and in batches in the peers."""

    def __init__(self, settings: Settings) -> None:
        lines = Path(settings.sentences).read_text(encoding="utf-8").splitlines()
        self.settings, self.lines = settings, lines[:8] if settings.quick else lines
        self.experiment, _, self.params = run.load(Path(settings.run), decode={"beam_width": BEAM_WIDTH})
        self.config = EncoderDecoderConfig(**self.experiment.config["model"])
        require_peers(self.config, settings.run)
        self.tokenizer = read_tokenizer_file(Path(settings.run) / TOKENIZER_FILE)

    def ours(self) -> Callable[[], list[str]]:
        require_devices()
        evaluator = Evaluators(self.experiment, self.experiment.layout_of_one_copy())(self.params)
        to_prompts = self.experiment.task.to_prompts

        def translate() -> list[str]:
            groups = to_prompts(self.lines, 0, self.config.max_len)
            found = in_order_of_texts(groups, evaluator.decode(groups), EOS, len(self.lines))
            return [self.tokenizer.decode(hypotheses[0][0]) for hypotheses in found]

        return translate

    def of_ctranslate2(self, batches: int, batch_size: int) -> Callable[[], list[str]]:
        """Translates with CTranslate2, which sorts by length if there is more than a batch."""
        from experiments.benchmarks.peers_ctranslate2 import CTranslator

        translator = CTranslator(self.config, self.params, self.settings.threads, batches)

        def translate() -> list[str]:
            sources = [[*tokens, EOS] for tokens in map(self.tokenizer.encode, self.lines)]
            most = 2 * max(map(len, sources)) + 16
            found = translator.beam_search(sources, width=BEAM_WIDTH, max_tokens=most, at_once=batch_size)
            return [self.tokenizer.decode(tokens) for tokens in found]

        return translate


def sentences(settings: Settings) -> Iterator[Row]:
    """Beam search with 5 hypotheses on real sentences, to the end token. Needs --run and --sentences."""
    if not (settings.run and settings.sentences):
        raise UserError("--run and --sentences: missing; the row sentences translates with them")

    def way(make: Callable[..., Callable[[], list[str]]], *args: Any) -> Way:
        translate, found = make(Sentences(settings), *args), list[list[str]]()
        return Way(lambda: found.append(translate()), lambda: found[-1])

    def agreement(facts: dict[str, Any]) -> str:
        ours, shares = facts["fxf"], {}
        for name, theirs in facts.items():
            shares[name] = np.mean([one == other for one, other in zip(ours, theirs, strict=True)])
            assert shares[name] > 0.9, f"{name}: only {shares[name]:.1%} of the translations are the same"
        return f"the searches agree on {100 * min(shares.values()):.1f} % of {len(ours):,}"

    ways: dict[str, Callable[[], Way]] = {"fxf": functools.partial(way, Sentences.ours)}
    for n in (64, 200):
        for name, batches in ctranslators(settings).items():
            ways[f"{name}, {n} at a time, by length"] = functools.partial(way, Sentences.of_ctranslate2, batches, n)
    amount = len(Path(settings.sentences).read_text(encoding="utf-8").splitlines()[: 8 if settings.quick else None])
    yield Row("beam of 5, real sentences", "sentences/s", amount, ways, agreement)


ROWS: dict[str, Rows] = {"beam": beam, "generate": generate, "sentences": sentences}
