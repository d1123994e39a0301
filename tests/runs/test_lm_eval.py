"""The adapter for lm-evaluation-harness, against the harness's own backend on the run's export."""

import pytest

from fxf import UserError
from helpers import table
from small_runs import KEPT, command, text_config, trained

PAIRS = [("7 and", " 49 are"), ("", " 3 and 9"), ("12 and 144\n13", " and 169\n14 and 196\n15 and"), ("7" * 60, " and")]
TEXTS = [("".join(f"{i} and {i * i} are numbers.\n" for i in range(40, 52)),), ("7",)]
REFUSED = [("7", " and" * 99, "a continuation of"), ("7", {"num_beams": 4}, "num_beams: not read; expected do_sample")]


@pytest.mark.thorough  # with a library that is not among the requirements
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bos", [False, True])
def test_the_harness_scores_and_continues_as_with_its_own_backend(bos, tmp_path):
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    from fxf.runs.lm_eval import FxfLM

    (tmp_path / "text.txt").write_text("".join(f"{i} and {i * i} are numbers.\n" for i in range(300)))
    like_gpt2 = {"positions": "learned", "activation": "gelu", "norm_epsilon_in": "variance", "tied_embeddings": True}
    config = text_config(
        tmp_path / "text.txt",
        model={"max_len": 24, **like_gpt2},
        task={"length": 24, "bos": bos},
        data={"tokenizer": "bpe", "vocab_size": 300},
        train={"steps": 9},
    )
    trained(config, tmp_path / "run", kept=KEPT)
    command("export", f"--workdir={tmp_path / 'run'}", "--format=huggingface", f"--output={tmp_path / 'exported'}")

    ours = FxfLM(str(tmp_path / "run"), device="cpu", add_bos_token=False)
    prefix = ours.prefix_token_id
    options = {"max_length": 24, "prefix_token_id": prefix, "add_bos_token": False}
    theirs = HFLM(str(tmp_path / "exported"), device="cpu", dtype="float32", **options)
    theirs.tokenizer.eos_token = theirs.tokenizer.pad_token = theirs.tokenizer.convert_ids_to_tokens(prefix)

    def asked(kind, arguments):
        instances = [Instance(request_type=kind, doc={}, arguments=each, idx=i) for i, each in enumerate(arguments)]
        return [getattr(model, kind)(instances) for model in (ours, theirs)]

    found, expected = asked("loglikelihood", PAIRS)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in expected]
    assert [log for log, _ in found] == pytest.approx([log for log, _ in expected], rel=1e-5)
    found, expected = asked("loglikelihood_rolling", TEXTS)
    assert found == pytest.approx(expected, rel=1e-5)
    found, expected = asked("generate_until", [(of.pop("context"), of) for of, _ in table("contexts of a harness")])
    assert found == expected
    for (*arguments, message), function in zip(REFUSED, (ours.loglikelihood, ours.generate_until), strict=True):
        with pytest.raises(UserError, match=message):
            function([Instance("", {}, tuple(arguments), 0)])
    cut = Instance("generate_until", {}, ("日本語" * 20 + "7", {"max_gen_toks": 9, "temperature": 1.0}), 0)
    assert len({*ours.generate_until([cut] * 4)}) == 4  # the context begins within a character
