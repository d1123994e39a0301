"""Pairs of sentences, from files, the phrase book and public data sets."""

import gzip
from pathlib import Path

import pytest

from fxf.base.errors import UserError
from fxf.base.files import digest
from fxf.data import phrasebook
from fxf.data.corpus import DataConfig, Example, read_corpus, tokenize
from fxf.data.documents import DocumentsConfig, read, sources
from fxf.data.phrasebook import phrases
from fxf.data.tokenizer import EOS, train_tokenizer
from helpers import first_phrases, refused, table

LINES = [f"Sentence {i // 2}.\tPhrase {i}.\tCC-BY {i}" for i in range(200)]


def pairs(tmp_path, lines, **more):
    """Returns the config for a file with these lines, as text or bytes."""
    path = tmp_path / "fra.txt"
    path.write_bytes(lines if isinstance(lines, bytes) else "".join(f"{line}\n" for line in lines).encode())
    return DataConfig(**{"name": "pairs", "path": str(path), "columns": "en,fr", **more})


def parallel(tmp_path, sources, targets, **more):
    """Returns the config for a folder whose training files have these lines; the others have one line."""
    for split, (en, fr) in {"train": (sources, targets), "val": (["v"], ["w"]), "test": (["t"], ["u"])}.items():
        (tmp_path / f"{split}.en").write_bytes("".join(f"{line}\n" for line in en).encode())
        (tmp_path / f"{split}.fr").write_bytes("".join(f"{line}\n" for line in fr).encode())
    return DataConfig(name="parallel", path=str(tmp_path), **more)


def sources_of(examples):
    return {" ".join(e.source.lower().split()) for e in examples}


def test_every_line_is_in_one_split_that_depends_on_neither_order_nor_targets_with_all_translations(tmp_path):
    varied = [line.replace("Sentence", " SENTENCE ") if i % 4 == 1 else line for i, line in enumerate(LINES)]
    corpus = read_corpus(pairs(tmp_path, varied, held_out=0.1))
    expected = [Example(*line.split("\t")[:2], f"fra.txt:{i}") for i, line in enumerate(varied, 1)]
    assert sorted(e for split in corpus[:3] for e in split) == sorted(expected) and corpus.skipped == 0
    assert corpus.train == [e for e in expected if e in corpus.train], "not in the order of the file"
    train, validation, test = map(sources_of, corpus[:3])
    assert not train & validation and not train & test and not validation & test
    first = [(80, "sentence 0."), (10, "sentence 32."), (10, "sentence 10.")]  # as in every version of fxf
    assert [(len(part), min(part)) for part in (train, validation, test)] == first
    turned_lines = "\n".join(line.replace("Phrase", "Mot") for line in varied[::-1])
    turned = read_corpus(pairs(tmp_path, gzip.compress(turned_lines.encode()), held_out=0.1))
    assert [*map(sources_of, turned[:3])] == [train, validation, test]


def test_a_limit_keeps_the_first_pairs_and_pairs_to_learn_by_heart_are_in_every_part(tmp_path):
    assert all(read_corpus(pairs(tmp_path, LINES[:8], held_out=0.4))[:3])  # no part is empty
    whole, some = (read_corpus(pairs(tmp_path, LINES, held_out=0.1, limit=limit)) for limit in (0, 7))
    assert (some.train, some.validation, some.test) == (whole.train[:7], whole.validation, whole.test)
    lines = [f"{i}\t{i * i}" for i in range(5)]
    expected = [Example(str(i), str(i * i), f"fra.txt:{i + 1}") for i in range(5)]
    for limit in (0, 2):
        assert read_corpus(pairs(tmp_path, lines, held_out=0.0, limit=limit))[:3] == (expected[: limit or 5],) * 3


@pytest.mark.parametrize(("keys", "_"), table("columns of a corpus"))
def test_the_columns_are_in_the_languages_that_the_config_or_the_first_line_says(keys, _, tmp_path, capsys):
    columns, source, target = keys.values()
    names = [name.strip() for name in columns.split(",")]
    lines, header = ["\t".join(f"{name} {i}" for name in names) for i in range(9)], "\t".join(names)
    unnamed = [f"{line}\tCC-BY" for line in lines]  # a last column without a name
    named, with_more = [header, *lines], [f"{header.upper()}\tby", *unnamed]
    for given, said, first in (unnamed, columns, 1), (named, columns, 2), (named, "", 2), (with_more, columns, 2):
        found = read_corpus(pairs(tmp_path, given, columns=said, source=source, target=target))
        expected = [Example(f"{source} {i}", f"{target} {i}", f"fra.txt:{first + i}") for i in range(9)]
        assert sorted(example for part in found[:3] for example in part) == expected
        told = f"fra.txt: the first line names the columns: {', '.join(names)}\n" if first == 2 else ""
        assert capsys.readouterr().err == told


@pytest.mark.parametrize(("bad", "message"), table("bad lines of a corpus"))
def test_a_bad_line_is_an_error_or_skipped_and_counted(tmp_path, bad, message):
    content = "\n".join(LINES[:6]).encode().replace(LINES[2].encode(), bad["line"])
    with pytest.raises(UserError) as caught:
        read_corpus(pairs(tmp_path, content))
    assert str(caught.value) == message
    corpus = read_corpus(pairs(tmp_path, content, on_error="skip"))
    assert (sum(map(len, corpus[:3])), corpus.skipped) == (5, 1)


def test_parallel_files_are_paired_line_by_line_and_test_sentences_in_training_are_counted(tmp_path, caplog):
    corpus = read_corpus(parallel(tmp_path, ["a", "b\u2028b", "c\t "], ["A", "B", "C\r"]))
    train = [("a", "A", "train.en:1"), ("b\u2028b", "B", "train.en:2"), ("c\t ", "C", "train.en:3")]
    assert corpus[:4] == (train, [("v", "w", "val.en:1")], [("t", "u", "test.en:1")], 0)
    assert {*corpus.digests} == {f"{part}.{side}" for part in ("train", "val", "test") for side in ("en", "fr")}
    assert not caplog.records
    read_corpus(parallel(tmp_path, ["a", "T"], ["A", "T"], lower_case=True))
    assert caplog.messages == ["warning: 1 of the 1 test sentences are in the training part too"]


def test_a_share_of_the_training_pairs_loses_its_punctuation_on_both_sides(tmp_path):
    lines = [*(f"...is it {i}?!" for i in range(999)), "?!"], [*(f"Est-ce {i} ?" for i in range(999)), "!"]
    corpus = read_corpus(parallel(tmp_path, *lines, unpunctuated=0.25))
    bare = [e for e in corpus.train if not e.source.endswith("?!")]
    assert 200 < len(bare) < 300
    assert all(e.source[:3] == "..." and e.source[-1].isdigit() and e.target[-1].isdigit() for e in bare)
    assert all(e.target[-2:] in (" ?", "!") for e in corpus.train if e.source.endswith("?!"))
    assert corpus.train[-1][:2] == ("?!", "!")  # pure punctuation stays
    assert corpus.test == read_corpus(parallel(tmp_path, *lines)).test


def test_the_phrasebook_has_three_splits_and_six_is_all_at_once(monkeypatch):
    monkeypatch.setattr(phrasebook, "phrases", first_phrases)
    corpus = read_corpus(DataConfig(target="es"))
    assert all(corpus[:3]) and any("ñ" in e.target for e in corpus.train)
    assert not sources_of(corpus.train) & sources_of(corpus.test + corpus.validation)
    corpus = read_corpus(DataConfig(name="six"))
    assert len(corpus.train) == 6 and corpus.train == corpus.validation == corpus.test


@pytest.mark.parametrize(("wrong", "message"), refused("corpus"))
def test_a_name_that_does_not_exist_is_refused(wrong, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = "\n".join(LINES)
    contents = {"turned": b"id\tfr\ten\n1\tVa\tGo\n", "scored": b"1.1\tGo\tVa", "utf16": text.encode("utf-16")}
    for name, content in {"empty": b"", "blank": b"\n\n", **contents}.items():
        Path(name).write_bytes(content)
    pairs(tmp_path, LINES)
    with pytest.raises(UserError, match=message):
        read_corpus(DataConfig(**{"name": "pairs", "path": "fra.txt", "columns": "en,fr", **wrong}))


def test_tokens_end_with_eos_and_are_never_cut():
    tokenizer = train_tokenizer("word", 100, ["a b c d A B"])
    examples = [Example("a b", "A", "x:1"), Example("a b c d", "A B", "x:2"), Example("c", "A B A B", "x:3")]
    kept = tokenize(DataConfig(max_length=5), tokenizer, examples)
    assert [example for example, _ in kept] == examples
    for example, pair in kept:
        assert [tokenizer.decode(side) for side in pair] == [example.source, example.target]
        assert all(side[-1] == EOS and EOS not in side[:-1] and side.dtype == tokenizer.dtype for side in pair)
    ((example, pair),) = tokenize(DataConfig(max_length=4, on_error="skip"), tokenizer, examples)
    assert example == kept[0][0] and [[*side] for side in pair] == [[*side] for side in kept[0][1]]
    for keys, message in (
        ({"max_length": 4}, r"x:2: source of 5 and target of 3 tokens, .*data.max_length is 4"),
        ({"max_length": 2, "on_error": "skip"}, r"data.max_length: none of 3 pairs has 2 tokens or fewer"),
    ):
        with pytest.raises(UserError, match=message):
            tokenize(DataConfig(**keys), tokenizer, examples)


DIGESTS = {"fr": "45e4b43acdc3769a33188cd5acedf2cf", "es": "fc2f71f8dd0a3bbef8fe5f9d1314be68"}


@pytest.mark.parametrize(("language", "expected"), DIGESTS.items())
def test_the_phrase_book_is_the_one_that_results_were_measured_on(language, expected):
    assert digest("".join("\t".join(phrase) + "\n" for phrase in phrases(language)).encode()) == expected


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """The folder of a data set with two texts in each of three splits, one of them empty."""
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    import tensorflow_datasets as tfds

    class TinyTranslate(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.Translation(("pt", "en"))
            return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in ("train", "validation", "test")}

        def _generate_examples(self, split):
            yield from enumerate([{"pt": f"olá {split}", "en": f"hello {split}"}, {"pt": "olá", "en": ""}])

    yield tmp_path / "tfds"
    tfds.core.registered._DATASET_REGISTRY.pop("tiny_translate")


def pairs_of_set(**more):
    keys = {"name": "tfds", "path": "tiny_translate", "source": "pt", "target": "en", "validation": "validation"}
    return read_corpus(DataConfig(**keys | more))


def documents(**more):
    config = DocumentsConfig(path="tiny_translate", format="tfds", **more)
    (source,) = sources(config)
    return source, [text for text, _ in read(config, source)]


def test_the_pairs_and_the_texts_of_a_data_set_are_read_by_its_name(tiny, capfd, monkeypatch):
    corpus = pairs_of_set(on_error="skip")
    assert corpus.train == [Example("olá train", "hello train", "tiny_translate:train:1")]
    assert corpus.test == [Example("olá test", "hello test", "tiny_translate:test:1")]
    assert corpus.skipped == 3 and list(corpus.digests) == ["data.path"]
    source, texts = documents(field="pt", split="test")
    assert texts == ["olá test", "olá"]
    assert source.name == "tiny_translate/1.0.0:test" and source.digest() != corpus.digests["data.path"]
    assert capfd.readouterr().out == ""
    from fxf.data.public_sets import data_dir

    monkeypatch.delenv("TFDS_DATA_DIR")
    assert data_dir() == str(Path.home() / "tensorflow_datasets")


def test_a_part_that_a_data_set_lacks_is_named(tiny):
    for read_it, keys, message in (
        (pairs_of_set, {"source": "de"}, r"data.source: expected one of en, pt; got 'de'"),
        (documents, {}, r"data.field: expected one of en, pt; got 'text'"),
        (pairs_of_set, {}, "tiny_translate:train:2: the target is empty"),
        (documents, {"field": "en", "split": "val"}, r"data.path: TFDS cannot load 'tiny_translate': .*val"),
    ):
        with pytest.raises(UserError, match=message):
            read_it(**keys)
        if "expected one of" in message:
            assert not list(tiny.rglob("tiny_translate")), "prepared before the features were looked at"
