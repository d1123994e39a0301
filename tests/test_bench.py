"""The benchmark's table, by ways that take no time."""

import numpy as np
import pytest

from fxf.data.tokenizer import EOS, PAD
from fxf.models.decode_config import DecodeConfig
from fxf.models.decoder import Decoder
from fxf.models.encoder_decoder import EncoderDecoderConfig, encoder_decoder
from helpers import random_params, scaled


def test_ways_take_turns_and_the_first_turn_does_not_count():
    from experiments.benchmarks.rows import Measured, Row, Way, measured

    called = []

    def way(name, seconds):
        def run():
            called.append(name)
            return Measured(seconds[called.count(name) - 1])

        return Way(run, lambda: f"{name} after {len(called)}")

    ways = {"fxf": way("fxf", [99, 1, 4, 2]), "peer": way("peer", [99, 3, 3, 3])}
    found = measured(Row("work", "tokens/s", 12, {}, lambda facts: facts["fxf"]), ways, 3)
    assert found["figures"] == {
        "fxf": {"median": 6, "least": 3, "most": 12},
        "peer": {"median": 4, "least": 4, "most": 4},
    }
    assert found["note"] == "fxf after 8"
    assert called == ["fxf", "peer"] * 4


@pytest.mark.parametrize(("unit", "ratio"), [("tokens/s", "0.50"), ("s", "2.00")])
def test_the_table_says_how_many_times_as_good_fxf_is_also_where_a_peer_wins(unit, ratio):
    from experiments.benchmarks.rows import markdown

    figures = {"fxf": {"median": 2.0, "least": 1.0, "most": 3.0}, "peer": {"median": 4.0, "least": 4.0, "most": 4.0}}
    lines = markdown([{"what": "work", "unit": unit, "figures": figures, "note": ""}]).splitlines()
    assert lines[2:] == [f"| work, {unit} | fxf | 2 | 1 to 3 |  |", f"|  | peer | 4 | 4 to 4 | {ratio} |"]
    assert "not measured: no torch" in markdown([{"what": "work", "error": "no torch"}])


@pytest.mark.thorough  # imports CTranslate2, which takes as long as all others here
def test_ctranslate2_begins_and_ends_where_fxf_does():
    pytest.importorskip("ctranslate2")
    from experiments.benchmarks.peers_ctranslate2 import CTranslator

    config = EncoderDecoderConfig(
        **{"n_layers": 1, "d_model": 8, "d_ff": 7, "n_heads": 2, "max_len": 12},
        **{"positions": "sinusoidal", "embeddings": "shared", "attention_bias": "all", "activation": "relu"},
    )
    model = encoder_decoder(config, 9)
    params = scaled(random_params(model.spec, 1), 3)  # an answer depends on the first token too
    source = np.random.default_rng(0).integers(5, 9, (7, 5)).astype(np.int32)
    decode = Decoder(model, EOS, config=DecodeConfig(beam_width=2))
    prompts = {"source": source, "source_mask": np.ones(source.shape, bool), "lengths": np.zeros(7, np.int32)}
    first = {"first": np.full(7, PAD, np.int32)}
    tokens = np.zeros((7, 0), np.int32)
    ours, otherwise = (decode(params, {**prompts, **more, "tokens": tokens}, 6)[0][:, 0] for more in ({}, first))
    assert (ours != otherwise).any(1).sum() > 3  # else this would not tell BOS from padding
    found = CTranslator(config, params, 1).beam_search(source.tolist(), width=2, max_tokens=6, least=0)
    assert found == [row[: [*row, EOS].index(EOS)] for row in ours.tolist()]
    assert len(set(map(len, found))) > 1
