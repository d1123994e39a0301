"""Rows of decoding: cached steps, beam search and `generate`, in batches and one at a time, and real sentences.

Where both search by the same rule, they must find the same before anything is timed.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rows import Row, Rows, Settings
from rows_training import TINY, TINY_VOCAB_SIZE, random_pairs

from fxf.data.tokenizer import EOS, PAD, TOKENIZER_FILE, read_tokenizer
from fxf.decoding.config import DecodeConfig
from fxf.decoding.decoder import make_decoder
from fxf.errors import UserError
from fxf.interop import huggingface
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from fxf.models.model import Model
from fxf.models.transformer_lm import TransformerLMConfig, transformer_lm
from fxf.runs import run
from fxf.tasks.prompts import decode_groups
from fxf.training.log import Clock
from fxf.weights import Params, initialize

# Marian's model of Tiny's size. With its default init_std a random model repeats one token, and all scores are alike.
MARIAN: dict[str, Any] = {
    **{"d_model": 128, "activation_function": "relu", "max_position_embeddings": 64, "scale_embedding": True},
    **{"pad_token_id": 0, "decoder_start_token_id": 0, "forced_eos_token_id": None, "init_std": 0.3},
    **{"encoder_layers": 4, "encoder_attention_heads": 4, "encoder_ffn_dim": 256},
    **{"decoder_layers": 4, "decoder_attention_heads": 4, "decoder_ffn_dim": 256},
}
BEAM_WIDTH, MAX_TOKENS = 5, 24
TOGETHER, ALONE = 64, 4  # sentences of a batch, and sentences translated one at a time
NO_END = -1  # no token has this number, so that all ways take the same number of steps

Search = Callable[[slice], np.ndarray]  # returns the tokens of the best hypotheses for some sentences of the batch


def drawn(model: Model) -> Params:
    return jax.jit(functools.partial(initialize, model.spec))(jax.random.key(0))


def greedy(settings: Settings) -> Iterator[Row]:
    """Greedy decoding at the size of seed 004's examples, beside reading the whole sequence again for each token."""
    n, length = 16, 32 if settings.quick else 128
    model = transformer_lm(TransformerLMConfig(n_layers=2, d_model=128, d_ff=256, n_heads=2, max_len=length + 2), 11)
    params, decode = drawn(model), make_decoder(model, NO_END)
    first = np.random.default_rng(0).integers(1, 11, (n, 1)).astype(np.int32)
    prompts = {"tokens": first, "lengths": np.ones(n, np.int32)}

    @jax.jit
    def next_tokens(tokens_BT: jax.Array, t: jax.Array) -> jax.Array:
        logits_BTV = model.apply(params, {"inputs": tokens_BT})
        return tokens_BT.at[:, t].set(jnp.argmax(logits_BTV[:, t - 1], axis=-1))

    def again() -> None:
        tokens = jnp.zeros((n, length + 2), jnp.int32).at[:, 1].set(first[:, 0])
        for t in range(2, length + 2):
            tokens = next_tokens(tokens, t)
        jax.block_until_ready(tokens)

    ways = {"fxf": lambda: decode(params, prompts, length), "without a cache": again}
    yield Row(f"greedy, {n} sequences of {length} tokens", "tokens/s", n * length, ways)


def search_of(model: Model, params: Params, batch: dict[str, Any]) -> Search:
    """Returns fxf's beam search."""
    decode = make_decoder(model, NO_END, config=DecodeConfig(beam_width=BEAM_WIDTH))

    def search(rows: slice) -> np.ndarray:
        source = {name: batch[name][rows] for name in ("source", "source_mask")}
        n = len(source["source"])
        prompts = {**source, "tokens": np.zeros((n, 0), np.int32), "lengths": np.zeros(n, np.int32)}
        return decode(params, prompts, MAX_TOKENS)[0][:, 0]

    return search


def search_rows(what: str, ours: Search, peers: dict[str, Search], settings: Settings) -> Iterator[Row]:
    """Yields a row of a batch and a row of sentences one at a time."""
    n = 8 if settings.quick else TOGETHER
    for peer, theirs in peers.items():
        same = (ours(slice(n)) == theirs(slice(n))).mean()
        # Two hypotheses may score almost the same.
        assert same > 0.9, f"{peer}: only {same:.1%} of the tokens are the same"

    def each(way: Search, groups: list[slice]) -> None:
        for rows in groups:
            way(rows)

    for title, groups in {
        f"{n} sentences at a time": [slice(n)],
        "alone": [slice(i, i + 1) for i in range(ALONE)],
    }.items():
        ways = {name: functools.partial(each, way, groups) for name, way in {"fxf": ours, **peers}.items()}
        amount = sum(rows.stop - (rows.start or 0) for rows in groups)
        yield Row(f"{what}, {title}", "sentences/s", amount, ways)


def ctranslators(settings: Settings) -> dict[str, int]:
    """Returns the names of CTranslate2's ways, and how many batches each translates side by side."""
    several = {"CTranslate2, a core for each batch": settings.threads} if settings.threads > 1 else {}
    return {"CTranslate2": 1, **several}


def beam(settings: Settings) -> Iterator[Row]:
    """A beam of 5 at Transformer-Tiny's size, 24 tokens each, beside PyTorch with a cache, and CTranslate2."""
    import torch
    from peers_ctranslate2 import CTranslator
    from peers_translator import TorchTranslator

    torch.set_num_threads(settings.threads)
    model = encoder_decoder(TINY, TINY_VOCAB_SIZE)
    params, batch = drawn(model), random_pairs(TOGETHER, 16, TINY_VOCAB_SIZE)
    translator = TorchTranslator(TINY, params).eval()

    def theirs(rows: slice) -> np.ndarray:
        source, padding = torch.tensor(batch["source"][rows]).long(), torch.tensor(~batch["source_mask"][rows])
        options = {"width": BEAM_WIDTH, "max_tokens": MAX_TOKENS, "end_token": NO_END}
        return translator.beam_search(source, padding, **options)[:, 0].numpy()

    def of_ctranslate2(translator: CTranslator, batches: int, rows: slice) -> np.ndarray:
        sources = batch["source"][rows].tolist()
        options = {"max_tokens": MAX_TOKENS, "least": MAX_TOKENS, "at_once": -(-len(sources) // batches)}
        return np.array(translator.beam_search(sources, width=BEAM_WIDTH, **options))

    peers: dict[str, Search] = {"PyTorch": theirs}
    for name, batches in ctranslators(settings).items():
        translator_of = CTranslator(TINY, params, settings.threads, batches)
        peers[name] = functools.partial(of_ctranslate2, translator_of, batches)
    yield from search_rows("beam of 5", search_of(model, params, batch), peers, settings)


def generate(settings: Settings) -> Iterator[Row]:
    """The same with `generate` of Hugging Face's transformers, and the weights of its Marian model."""
    import torch
    import transformers

    torch.set_num_threads(settings.threads)
    marian = transformers.MarianMTModel(transformers.MarianConfig(vocab_size=TINY_VOCAB_SIZE, **MARIAN)).eval()
    loaded = huggingface.load(marian)
    batch = random_pairs(TOGETHER, 16, TINY_VOCAB_SIZE)

    @torch.inference_mode()
    def theirs(rows: slice) -> np.ndarray:
        source, counts = torch.tensor(batch["source"][rows]).long(), torch.tensor(batch["source_mask"][rows]).long()
        options = {"num_beams": BEAM_WIDTH, "max_new_tokens": MAX_TOKENS, "early_stopping": True, "do_sample": False}
        return marian.generate(source, attention_mask=counts, eos_token_id=None, **options)[:, 1:].numpy()

    ours = search_of(loaded.model, loaded.params, batch)
    yield from search_rows("generate", ours, {"transformers": theirs}, settings)


def require_peers(config: EncoderDecoderConfig, run: str) -> None:
    """Raises a UserError if the peers cannot have the model of a run."""
    wanted = {"positions": "sinusoidal", "embeddings": "shared", "block": "pre_norm"}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            got = f"{run} has {getattr(config, name)!r}"
            raise UserError(f"--run: expected a run with model.{name} {value!r}, as the peers have; {got}")


class Sentences:
    """Translation of real sentences with a trained run: in fxf as `fxf generate` does, and in the peers in batches."""

    def __init__(self, settings: Settings) -> None:
        from peers_ctranslate2 import CTranslator
        from peers_translator import TorchTranslator

        lines = Path(settings.sentences).read_text(encoding="utf-8").splitlines()
        self.lines = lines[:8] if settings.quick else lines
        self.experiment, _, params = run.load(Path(settings.run), decode={"beam_width": BEAM_WIDTH})
        self.evaluator = self.experiment.evaluator(Clock(0.0), self.experiment.layout_of_one_copy())(params)
        self.config = EncoderDecoderConfig(**self.experiment.config["model"])
        require_peers(self.config, settings.run)
        self.translator = TorchTranslator(self.config, params).eval()
        self.compiled = {
            name: CTranslator(self.config, params, settings.threads, batches)
            for name, batches in ctranslators(settings).items()
        }
        self.tokenizer = read_tokenizer(Path(settings.run) / TOKENIZER_FILE)

    def ours(self) -> list[str]:
        to_prompts = self.experiment.task.to_prompts
        assert to_prompts is not None
        groups = to_prompts(self.lines, 0, self.config.max_len)
        found = decode_groups(self.evaluator.decode, groups, EOS, len(self.lines))
        return [self.tokenizer.decode(hypotheses[0][0]) for hypotheses in found]

    def theirs(self, batch_size: int, by_length: bool) -> list[str]:
        import torch

        sources = [torch.tensor([*tokens, EOS]) for tokens in self.tokenizer.encode_all(self.lines)]
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]) if by_length else i)
        found = [""] * len(sources)
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            source = torch.nn.utils.rnn.pad_sequence([sources[i] for i in chosen], True, PAD)
            options = {"width": BEAM_WIDTH, "max_tokens": 2 * source.shape[1] + 16, "end_token": EOS}
            tokens = self.translator.beam_search(source, source == PAD, **options)[:, 0]
            for i, row in zip(chosen, tokens.tolist(), strict=True):
                found[i] = self.tokenizer.decode(row[: [*row, EOS].index(EOS)])
        return found

    def of_ctranslate2(self, name: str, batch_size: int) -> list[str]:
        """Sorts the sentences by length, as CTranslate2 does with more than a batch of them."""
        sources = [[*tokens, EOS] for tokens in self.tokenizer.encode_all(self.lines)]
        most = 2 * max(map(len, sources)) + 16
        found = self.compiled[name].beam_search(sources, width=BEAM_WIDTH, max_tokens=most, at_once=batch_size)
        return [self.tokenizer.decode(tokens) for tokens in found]


def sentences(settings: Settings) -> Iterator[Row]:
    """A beam of 5 on real sentences, which end at the end token. Needs --run and --sentences."""
    if not (settings.run and settings.sentences):
        raise UserError("--run and --sentences: missing; the row sentences translates with them")
    both = Sentences(settings)
    ways: dict[str, Callable[[], Any]] = {"fxf": both.ours, "PyTorch, one at a time": lambda: both.theirs(1, False)}
    for n in (64, 200):
        ways[f"PyTorch, {n} at a time"] = functools.partial(both.theirs, n, False)
        ways[f"PyTorch, {n} at a time, by length"] = functools.partial(both.theirs, n, True)
        for name in both.compiled:
            ways[f"{name}, {n} at a time, by length"] = functools.partial(both.of_ctranslate2, name, n)
    ours, agreed = both.ours(), []
    for name, theirs in {
        "PyTorch": both.theirs(64, True),
        "CTranslate2": both.of_ctranslate2("CTranslate2", 64),
    }.items():
        same = np.mean([one == other for one, other in zip(ours, theirs, strict=True)])
        assert same > 0.9, f"{name}: only {same:.1%} of the translations are the same"
        agreed.append(f"{100 * same:.1f} % with {name}")
    note = f"the searches agree on {' and '.join(agreed)} of {len(both.lines):,}"
    yield Row("beam of 5, real sentences", "sentences/s", len(both.lines), ways, note=lambda: note)


ROWS: dict[str, Rows] = {"greedy": greedy, "beam": beam, "generate": generate, "sentences": sentences}
