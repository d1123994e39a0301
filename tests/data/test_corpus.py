import os
from pathlib import Path

import pytest

from fxf.data import phrasebook
from fxf.data.corpus import CORPORA, DataConfig, Example, read_corpus, tokenize
from fxf.data.sentence_files import good_lines, split_by_source, tab_separated
from fxf.data.tokenizer import EOS, train_tokenizer
from fxf.errors import UserError
from helpers import first_phrases

LINES = [f"Sentence {i // 2}.\tPhrase {i}.\tCC-BY {i}" for i in range(200)]
SPLITS = ("train", "validation", "test")


@pytest.fixture
def real():
    if "FXF_DATA" not in os.environ:
        pytest.skip("FXF_DATA, the folder of real text, is not set")
    return Path(os.environ["FXF_DATA"])


def pairs(tmp_path, lines, **more):
    """Returns the config of a file with these lines, given as text or bytes."""
    path = tmp_path / "fra.txt"
    path.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
    return DataConfig(**{"name": "pairs", "path": str(path), "columns": "en,fr", **more})


def parallel(tmp_path, sources, targets, **more):
    """Returns the config of a folder whose training files have these lines; the others have one line."""
    for split, (en, fr) in {"train": (sources, targets), "val": (["v"], ["w"]), "test": (["t"], ["u"])}.items():
        (tmp_path / f"{split}.en").write_bytes("".join(f"{line}\n" for line in en).encode())
        (tmp_path / f"{split}.fr").write_bytes("".join(f"{line}\n" for line in fr).encode())
    return DataConfig(name="parallel", path=str(tmp_path), **more)


def sources(examples):
    return {e.source for e in examples}


def test_every_line_of_a_file_is_in_one_split_with_its_place(tmp_path):
    corpus = read_corpus(pairs(tmp_path, LINES))
    found = [e for split in corpus[:3] for e in split]
    expected = [Example(*line.split("\t")[:2], f"fra.txt:{i}") for i, line in enumerate(LINES, 1)]
    assert sorted(found) == sorted(expected)
    assert corpus.train == [e for e in expected if e in corpus.train], "not in the order of the file"
    assert corpus.skipped == 0


def test_all_translations_of_a_source_are_in_one_split(tmp_path):
    varied = [line.replace("Sentence", " SENTENCE ") if i % 4 == 1 else line for i, line in enumerate(LINES)]
    corpus = read_corpus(pairs(tmp_path, varied, held_out=0.1))
    train, validation, test = ({" ".join(s.lower().split()) for s in sources(split)} for split in corpus[:3])
    assert not train & validation and not train & test and not validation & test
    assert (len(train), len(validation), len(test)) == (80, 10, 10)


def test_the_split_of_a_source_depends_on_neither_order_nor_targets(tmp_path):
    lines = read_corpus(pairs(tmp_path, LINES, held_out=0.1))
    turned = read_corpus(pairs(tmp_path, [line.replace("Phrase", "Mot") for line in LINES[::-1]], held_out=0.1))
    for first, second in zip(lines[:3], turned[:3], strict=True):
        assert sources(first) == sources(second)


def test_three_sources_are_the_fewest(tmp_path):
    corpus = read_corpus(pairs(tmp_path, ["a\tA", "b\tB", "c\tC"]))
    assert [len(getattr(corpus, split)) for split in SPLITS] == [1, 1, 1]
    with pytest.raises(UserError, match=r"data.held_out: expected 3 source sentences or more.* got 2"):
        read_corpus(pairs(tmp_path, ["a\tA", "b\tB", "b\tC"]))


def test_pairs_to_learn_by_heart_are_in_every_part(tmp_path):
    lines = [f"{i}\t{i * i}" for i in range(5)]
    train, validation, test = read_corpus(pairs(tmp_path, lines, held_out=0.0))[:3]
    assert train == validation == test == [Example(str(i), str(i * i), f"fra.txt:{i + 1}") for i in range(5)]
    some = read_corpus(pairs(tmp_path, lines, held_out=0.0, limit=2))[:3]
    assert some == (train[:2],) * 3


def test_a_limit_keeps_the_first_pairs_of_the_training_part(tmp_path):
    whole, some = (read_corpus(pairs(tmp_path, LINES, held_out=0.1, limit=limit)) for limit in (0, 7))
    assert (some.train, some.validation, some.test) == (whole.train[:7], whole.validation, whole.test)


@pytest.mark.parametrize(
    ("columns", "source", "target"),
    [
        ("en,fr", "en", "fr"),
        ("en,fr", "fr", "en"),
        ("de, en", "de", "en"),
        ("de,en", "en", "de"),
        ("en,de,fr", "fr", "en"),
    ],
)
def test_the_columns_are_in_the_languages_that_the_config_says(columns, source, target, tmp_path):
    names = [name.strip() for name in columns.split(",")]
    lines = ["\t".join([*(f"{name} {i}" for name in names), "CC-BY"]) for i in range(9)]
    for cut in (None, -1):  # with a last column that has no name, and without
        some = ["\t".join(line.split("\t")[:cut]) for line in lines]
        corpus = read_corpus(pairs(tmp_path, some, columns=columns, source=source, target=target))
        found = sorted((e.source, e.target) for split in corpus[:3] for e in split)
        assert found == [(f"{source} {i}", f"{target} {i}") for i in range(9)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"columns": ""}, r"data.columns: expected the languages of the file's columns, .*such as en,fr; got ''"),
        ({"columns": "en,en"}, r"data.columns: expected the languages .*; got 'en,en'"),
        ({"columns": "en,,fr"}, r"data.columns: expected the languages .*; got 'en,,fr'"),
        ({"columns": "en"}, r"data.target: expected one of en; got 'fr'"),
        ({"source": "de", "target": "en"}, r"data.source: expected one of en, fr; got 'de'"),
        ({"target": "fra"}, r"data.target: expected one of en, fr; got 'fra'; did you mean 'fr'"),
        ({"target": "en"}, r"data.target: .*got 'en' for both"),
    ],
)
def test_a_language_without_a_column_is_refused(wrong, message, tmp_path):
    with pytest.raises(UserError, match=message):
        read_corpus(pairs(tmp_path, LINES, **wrong))


def test_only_line_feeds_end_lines(tmp_path):
    content = "\ufeffa\u2028b\x0bc\x85d \tA\r\nb\tB\u2029\r\nc\tC".encode()
    corpus = read_corpus(pairs(tmp_path, content))
    found = sorted((e.source, e.target) for split in corpus[:3] for e in split)
    assert found == [("a\u2028b\x0bc\x85d ", "A"), ("b", "B\u2029"), ("c", "C")]


BAD_LINES = {
    "Run.": "fra.txt:3: expected 2 tab-separated columns, got 1 column",
    "": "fra.txt:3: expected 2 tab-separated columns, got 1 column",
    "1\ta\t2\tb": "fra.txt:3: expected 2 tab-separated columns, got 4 columns",
    " \tb": "fra.txt:3: the source is empty",
    "a\t\tCC-BY": "fra.txt:3: the target is empty",
    b"a\tCaf\xe9": "fra.txt:3: the target is not UTF-8: byte 0xe9",
    b"\xff\tb": "fra.txt:3: the source is not UTF-8: byte 0xff; is it UTF-16?",
    b"a\tb\x00": "fra.txt:3: the target is not text: a null byte; is it UTF-16?",
}


@pytest.mark.parametrize("line", BAD_LINES)
def test_a_bad_line_is_an_error_or_skipped_and_counted(tmp_path, line):
    content = (
        "\n".join(LINES[:6]).encode().replace(LINES[2].encode(), line if isinstance(line, bytes) else line.encode())
    )
    with pytest.raises(UserError) as caught:
        read_corpus(pairs(tmp_path, content))
    assert str(caught.value) == BAD_LINES[line]
    corpus = read_corpus(pairs(tmp_path, content, on_error="skip"))
    assert (sum(map(len, corpus[:3])), corpus.skipped) == (5, 1)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_a_file_missing_or_without_pairs_is_always_an_error(tmp_path, on_error):
    config = pairs(tmp_path, b"", on_error=on_error)
    with pytest.raises(UserError, match=r"data.path: .*fra.txt: the file is empty"):
        read_corpus(config)
    with pytest.raises(UserError, match=r"fra.txt"):
        read_corpus(pairs(tmp_path, b"\n\n", on_error=on_error))
    for path, message in {
        "": "data.path: corpus 'pairs' needs it; give --config.data.path",
        str(tmp_path / "fr.txt"): "data.path: .*fr.txt: No such file or directory; did you mean 'fra.txt'",
        str(tmp_path): "data.path: .*expected a file, got a folder",
        str(tmp_path / "no" / "fra.txt"): "data.path: .*No such file or directory",
    }.items():
        with pytest.raises(UserError, match=message):
            read_corpus(DataConfig(name="pairs", path=path, columns="en,fr", on_error=on_error))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
def test_a_file_in_utf_16_is_no_text(tmp_path, encoding):
    with pytest.raises(UserError, match=r"fra.txt:1: the \w+ is not (text|UTF-8): .*; is it UTF-16\?"):
        read_corpus(pairs(tmp_path, "\n".join(LINES).encode(encoding)))


def test_parallel_files_are_paired_line_by_line(tmp_path):
    corpus = read_corpus(parallel(tmp_path, ["a", "b\u2028b", "c\t "], ["A", "B", "C\r"]))
    assert corpus.train == [
        Example("a", "A", "train.en:1"),
        Example("b\u2028b", "B", "train.en:2"),
        Example("c\t ", "C", "train.en:3"),
    ]
    assert corpus[1:4] == ([Example("v", "w", "val.en:1")], [Example("t", "u", "test.en:1")], 0)


@pytest.mark.parametrize(
    ("en", "fr", "message"),
    [
        (["a", "b"], ["A"], "train.en:2: train.fr has no such line"),
        (["a"], ["A", "B"], "train.fr:2: train.en has no such line"),
        (["a", ""], ["A", "B"], "train.en:2: the source is empty"),
        (["a", "b"], ["A", ""], "train.fr:2: the target is empty"),
    ],
)
def test_a_bad_pair_of_lines_is_an_error_or_skipped_and_counted(tmp_path, en, fr, message):
    with pytest.raises(UserError) as caught:
        read_corpus(parallel(tmp_path, en, fr))
    assert str(caught.value) == message
    corpus = read_corpus(parallel(tmp_path, en, fr, on_error="skip"))
    assert (corpus.train, corpus.skipped) == ([Example("a", "A", "train.en:1")], 1)


def test_parallel_files_that_are_trained_on_are_not_scored(tmp_path):
    for name in ("validation", "test"):
        config = parallel(tmp_path, ["a"], ["A"], **{name: "train"})
        with pytest.raises(UserError, match=f"data.{name}: expected other pairs than data.train, got 'train' for both"):
            read_corpus(config)


def test_test_sentences_that_are_trained_on_too_are_counted(tmp_path, caplog):
    read_corpus(parallel(tmp_path, ["a"], ["A"]))
    assert not caplog.records
    read_corpus(parallel(tmp_path, ["a", "t"], ["A", "T"]))
    assert caplog.messages == ["warning: 1 of the 1 test sentences are in the training part too"]


def test_a_missing_folder_or_parallel_file_is_an_error_that_names_the_key(tmp_path):
    config = parallel(tmp_path, ["a"], ["A"])
    (tmp_path / "val.fr").unlink()
    with pytest.raises(UserError, match=r"data.validation: .*val.fr: No such file"):
        read_corpus(config)
    with pytest.raises(UserError, match=r"data.path: no folder .*nowhere"):
        read_corpus(DataConfig(name="parallel", path=str(tmp_path / "nowhere")))


def test_lower_case_turns_both_sides_down(tmp_path):
    corpus = read_corpus(parallel(tmp_path, ["ÉA b"], ["ΑΒ"], lower_case=True))
    assert corpus.train == [Example("éa b", "αβ", "train.en:1")]


def test_a_share_of_the_training_pairs_loses_its_punctuation_on_both_sides(tmp_path):
    lines = [f"Is it {i}?!" for i in range(999)], [f"Est-ce {i} ?" for i in range(999)]
    corpus = read_corpus(parallel(tmp_path, *lines, unpunctuated=0.25))
    bare = [e for e in corpus.train if not e.source.endswith("?!")]
    assert 200 < len(bare) < 300
    assert all(e.source[-1].isdigit() and e.target[-1].isdigit() for e in bare)
    assert all(e.target.endswith(" ?") for e in corpus.train if e.source.endswith("?!"))
    assert corpus.test == read_corpus(parallel(tmp_path, *lines)).test


def test_what_is_punctuation_alone_keeps_it(tmp_path):
    assert read_corpus(parallel(tmp_path, ["?!"], ["!"], unpunctuated=0.999)).train == [
        Example("?!", "!", "train.en:1")
    ]


def test_the_phrasebook_has_three_splits(monkeypatch):
    monkeypatch.setattr(phrasebook, "phrases", first_phrases)
    corpus = read_corpus(DataConfig(target="es"))
    assert all(corpus[:3])
    assert not sources(corpus.train) & sources(corpus.test + corpus.validation)
    assert any("ñ" in e.target for e in corpus.train)
    with pytest.raises(UserError, match=r"data.target: expected one of fr, es; got 'de'"):
        read_corpus(DataConfig(target="de"))


def test_six_is_all_splits_at_once():
    corpus = read_corpus(DataConfig(name="six"))
    assert len(corpus.train) == 6
    assert corpus.train == corpus.validation == corpus.test


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "phrasebook", "path": "x"},
        {"name": "phrasebook", "source": "de"},
        {"name": "six", "target": "es"},
        {"name": "pairs", "path": "x", "train": "x"},
        {"name": "parallel", "path": "x", "held_out": 0.1},
        {"name": "parallel", "path": "x", "columns": "en,fr"},
    ],
)
def test_a_key_that_the_corpus_does_not_read_keeps_its_default(wrong):
    name = list(wrong)[-1]
    with pytest.raises(
        UserError, match=rf"data.{name}: corpus '{wrong['name']}' does not read it; leave it at \S+, or"
    ):
        read_corpus(DataConfig(**wrong))


def test_a_key_that_other_corpora_read_names_them():
    with pytest.raises(UserError, match=r"leave it at '', or set data.name \(pairs, parallel, tfds\)$"):
        read_corpus(DataConfig(path="x"))


def test_pairs_in_json_lines_are_told_where_to_read_on():
    with pytest.raises(UserError, match=r"x.jsonl: corpus 'pairs' reads tab-separated .* of docs/extending.md"):
        read_corpus(DataConfig(name="pairs", path="x.jsonl"))


def test_an_unknown_corpus_is_refused():
    with pytest.raises(UserError, match=f"data.name: expected one of {', '.join(CORPORA)}; .*did you mean 'pairs'"):
        read_corpus(DataConfig(name="pair"))


def test_tokens_end_with_eos_and_are_never_cut(tmp_path):
    tokenizer = train_tokenizer("word", 100, ["a b c d A B"])
    examples = [Example("a b", "A", "x:1"), Example("a b c d", "A B", "x:2"), Example("c", "A B A B", "x:3")]
    stop = tokenize(DataConfig(max_length=5), tokenizer, examples)
    assert [[tokenizer.decode(side) for side in pair] for pair in stop.pairs] == [
        [e.source, e.target] for e in examples
    ]
    assert all(side[-1] == EOS and EOS not in side[:-1] for pair in stop.pairs for side in pair)
    assert (stop.examples, stop.skipped) == (examples, 0)
    with pytest.raises(UserError, match=r"x:2: source of 5 and target of 3 tokens, .*data.max_length is 4"):
        tokenize(DataConfig(max_length=4), tokenizer, examples)
    skip = tokenize(DataConfig(max_length=4, on_error="skip"), tokenizer, examples)
    assert (skip.examples, skip.pairs, skip.skipped) == (examples[:1], stop.pairs[:1], 2)
    with pytest.raises(UserError, match=r"data.max_length: no sentence pair has at most 2 tokens"):
        tokenize(DataConfig(max_length=2, on_error="skip"), tokenizer, examples)


@pytest.mark.thorough
def test_ankis_file_has_no_bad_line_and_no_source_in_two_splits(real):
    content = (real / "tatoeba/fra-eng-2019/fra.txt").read_bytes()
    lines, skipped = good_lines(tab_separated(content, 2, 0, 1), ["fra.txt"] * 2, skip=False)
    assert (len(lines), skipped) == (content.count(b"\n"), 0)
    train, validation, test = split_by_source(lines, 0.02)
    assert not sources(train) & sources(validation + test)
    assert not sources(validation) & sources(test)
    assert len(validation) / len(lines) == pytest.approx(0.02, abs=0.002)
    tokenizer = train_tokenizer("bpe", 1000, [text for line in lines[::40] for text in (line.source, line.target)])
    assert all(tokenizer.decode(tokenizer.encode(line.target)) == line.target for line in test)


@pytest.mark.thorough
def test_multi30k_is_read_whole(real):
    stems = {"train": "train.lc.norm.tok", "validation": "val.lc.norm.tok", "test": "test_2016_flickr.lc.norm.tok"}
    corpus = read_corpus(DataConfig(name="parallel", path=str(real / "multi30k/tok"), target="de", **stems))
    assert [len(split) for split in corpus[:3]] == [29000, 1014, 1000]
    assert corpus.test[-1].where == "test_2016_flickr.lc.norm.tok.en:1000"
