"""The tokenizer.json of an export gives the same tokens as the run."""

import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from fxf.data.tokenizer import BOS, EOS, MASK, PAD, TOKENIZERS, train_tokenizer
from fxf.data.tokenizer_file import read_tokenizer_file
from fxf.interop.tokenizer_json import named_tokens, tokenizer_json, tokens_of
from fxf.runs.experiment import build, default_config
from helpers import table

TEXTS = ["the cat sat on the mat", "The dog's  hat, où ?\n\n\n", "Οδός\n\n\nσας"] * 2  # merges may join line ends
TEXT = "ΟΔΌΣ Σας, ΟΔΌΣ's 日Σ: the <eos> <unk> dog <pad>? <bos>hat\u00a0<eos>\n <mask> a  <EOS>'s 12\t"
TEXT += "  \n\n b \r\n c \u2028 d \x0b\x85  \r \x1c e"


def lines(tokenizer, text):
    """Returns the tokens of a text, line by line."""
    return [token for line in text.splitlines(keepends=True) for token in tokenizer.encode(line)]


def read(text, of):
    """Returns the tokens of a text as `transformers` reads it, with split_special_tokens."""
    backend = tokenizers.Tokenizer.from_str(of)
    backend.encode_special_tokens = True
    return backend.encode(text).ids


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("lower_case", [False, True])
def test_a_text_has_the_runs_tokens_and_those_around_it(kind, lower_case):
    tokenizer = train_tokenizer(kind, 300, TEXTS)
    expected = lines(tokenizer, TEXT.lower() if lower_case else TEXT)
    for around, before, after in ((BOS, None), [BOS], []), ((None, EOS), [], [EOS]), ((None, None), [], []):
        assert read(TEXT, tokenizer_json(tokenizer, around, lower_case=lower_case)) == [*before, *expected, *after]


@pytest.mark.parametrize("kind", TOKENIZERS)
@pytest.mark.parametrize("text", ["a <mask> hat", "<mask><eos><mask>, <mask>the  <mask>", "cat <mask>  \n\n\n<MASK> s"])
def test_a_blank_is_one_token_if_the_model_fills_in_blanks(kind, text):
    tokenizer = train_tokenizer(kind, 300, TEXTS)
    of = tokenizer_json(tokenizer, (BOS, EOS), blanks=True)
    pieces = text.split("<mask>")
    if kind == "bpe":
        pieces = [*(piece.rstrip(" ") for piece in pieces[:-1]), pieces[-1]]
    expected = [token for piece in pieces for token in (MASK, *lines(tokenizer, piece))]
    assert read(text, of) == [BOS, *expected[1:], EOS]


def unigram(*special):
    scores = {"▁": -2.0, "t": -3.0, "<": -3.0, "/s>": -5.0, ">": -4.0, "<0x0A>": -1.0}
    of_bytes = {f"<0x{byte:02X}>": -9.0 for byte in range(256) if byte != 10}
    pieces = dict.fromkeys(special, 0.0) | scores | of_bytes
    backend = tokenizers.Tokenizer(models.Unigram([*pieces.items()], 0, byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return backend


def byte_pairs(*special):
    """Returns a tokenizer whose merges make a special token."""
    pieces = ["<", "/", "s", ">", "t", " ", "</", "s>"]
    vocabulary = {name: i for i, name in enumerate((*special, *pieces))}
    merges = [("<", "/"), ("s", ">"), ("</", "s>")]
    return tokenizers.Tokenizer(models.BPE(vocabulary, merges, unk_token=special[0], fuse_unk=False))


@pytest.mark.parametrize("made", [unigram, byte_pairs])
def test_text_spelled_like_a_special_token_of_a_file_is_text_in_the_run_and_in_the_export(made, tmp_path):
    special = ("<unk>", "<s>", "</s>", "<pad>")
    backend = made(*special)
    backend.add_special_tokens(list(special))
    backend.normalizer = normalizers.Replace("x", "t")  # finds nothing in upper case
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer_file(tmp_path / "tokenizer.json")
    assert tokenizer.special[:4] == (1, 3, 2, 0)
    text = "x </s>t <pad> t</s> <s>"
    tokens = tokenizer.encode(text)
    assert not {1, 2, 3} & {*tokens} and tokens.count(backend.token_to_id("t")) >= 1
    assert tokenizer.array(text).tolist() == tokens
    of = tokenizer_json(tokenizer, (1, None))
    lower_case = tokenizer_json(tokenizer, (1, None), lower_case=True)
    assert read(text, of) == read(text.upper(), lower_case) == [1, *tokens]
    ids = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 3}
    names = {"bos_token": "<s>", "eos_token": None, "pad_token": "<pad>", "unk_token": "<unk>"}
    assert named_tokens(of, ids, masks=False) == names


@pytest.mark.parametrize(("keys", "expected"), table("tokens around a text"))
def test_a_task_names_what_its_model_reads_around_a_text(keys, expected, tmp_path):
    name, model, numbers = keys.pop("name"), keys.pop("model"), {"B": BOS, "E": EOS, "P": PAD}
    (tmp_path / "text.txt").write_text("the cat sat on the mat\n" * 40)
    config = default_config(name).to_dict()
    config["task"] |= keys
    config["data"] |= {"name": "six"} if name == "translation" else {"path": str(tmp_path / "text.txt")}
    config["data"] |= {"tokenizer": "word", "lower_case": True}
    task = build(config).task
    found = tokens_of(task, model)
    first, end, padding, _, before, after = map(numbers.get, expected.split())
    assert (found["first"], found["end"], found["padding"]) == (first, end, padding)
    read_tokens = [before, *task.tokenizer.encode("the <eos> cat"), after]
    assert read("The <EOS> CAT", found["tokenizer"]) == [token for token in read_tokens if token is not None]


def test_a_task_without_texts_names_its_own_tokens():
    found = tokens_of(build(default_config("reversal").to_dict()).task, "transformer_lm")
    assert (found["first"], found["end"], found["padding"]) == (0, 0, None)
