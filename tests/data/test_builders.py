from pathlib import Path

import pytest

from fxf.data.corpus import DataConfig, Example, read_corpus
from fxf.errors import UserError

LINES = [f"Sentence {i // 2}.\tPhrase {i}." for i in range(200)]


@pytest.fixture(autouse=True)
def prepared_data(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))


def pairs(tmp_path, lines, **more):
    """Returns the config of a file with these lines."""
    path = tmp_path / "fra.txt"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return DataConfig(name="pairs", columns="en,fr", path=str(path), **more)


def test_prepared_data_are_read_back_without_preparing_again(tmp_path, monkeypatch, capfd, caplog):
    config = pairs(tmp_path, [*LINES, "one column"], on_error="skip")
    first = read_corpus(config)
    assert first.skipped == 1
    monkeypatch.setattr("fxf.data.corpus.split_by_source", None)
    assert read_corpus(config) == first
    Path(config.path).rename(tmp_path / "new.txt")
    renamed = read_corpus(DataConfig(name="pairs", columns="en,fr", path=str(tmp_path / "new.txt"), on_error="skip"))
    assert renamed.train[0] == first.train[0]._replace(where=renamed.train[0].where)
    assert renamed.train[0].where.startswith("new.txt:")
    assert capfd.readouterr() == ("", "")
    assert not caplog.records


def test_prepared_data_are_never_stale(tmp_path):
    first = read_corpus(pairs(tmp_path, LINES))
    assert len(read_corpus(pairs(tmp_path, LINES, held_out=0.1)).test) > len(first.test)
    assert len(read_corpus(pairs(tmp_path, LINES[:-10])).train) < len(first.train)
    assert read_corpus(pairs(tmp_path, LINES, source="fr", target="en")).train[0].source.startswith("Phrase")
    with pytest.raises(UserError, match=r"fra.txt:201: "):
        read_corpus(pairs(tmp_path, [*LINES, "one column"]))
    read_corpus(pairs(tmp_path, [*LINES, "one column"], on_error="skip"))
    with pytest.raises(UserError, match=r"fra.txt:201: "):
        read_corpus(pairs(tmp_path, [*LINES, "one column"]))


def test_two_processes_may_prepare_at_once(tmp_path, monkeypatch):
    from fxf.data.builders import SentencePairs

    config = pairs(tmp_path, LINES)
    generate = SentencePairs._generate_examples
    finished_meanwhile = []

    def generate_slowly(*arguments):
        if not finished_meanwhile:
            finished_meanwhile.append(True)
            finished_meanwhile.append(read_corpus(config))
        return generate(*arguments)

    monkeypatch.setattr(SentencePairs, "_generate_examples", generate_slowly)
    assert read_corpus(config) == finished_meanwhile[1]
    assert not list(tmp_path.rglob("*incomplete*"))


def test_damaged_prepared_data_are_an_error_that_names_their_folder(tmp_path, monkeypatch):
    config = pairs(tmp_path, LINES)
    read_corpus(config)
    (shard,) = tmp_path.rglob("*train.array_record*")
    shard.write_bytes(shard.read_bytes()[:-999])
    with pytest.raises(UserError, match=r"tfds/sentence_pairs/pairs-.*; remove it, or set"):
        read_corpus(config)
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "fra.txt"))
    with pytest.raises(UserError, match=r"fra.txt/sentence_pairs/.*set TFDS_DATA_DIR to another folder"):
        read_corpus(config)


def test_a_tfds_data_set_is_read_by_its_name(tmp_path):
    import tensorflow_datasets as tfds

    class TinyTranslate(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.Translation(("pt", "en"))
            return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=True)

        def _split_generators(self, dl_manager):
            return {split: self._generate_examples(split) for split in ("train", "validation", "test")}

        def _generate_examples(self, split):
            yield 0, {"pt": f"olá {split}", "en": f"hello {split}"}
            yield 1, {"pt": "olá", "en": ""}

    def config(**more):
        more = {"source": "pt", "target": "en", "validation": "validation", **more}
        return DataConfig(name="tfds", path="tiny_translate", **more)

    with pytest.raises(UserError, match=r"data.source: expected one of en, pt; got 'de'"):
        read_corpus(config(source="de"))
    assert not list(tmp_path.rglob("tiny_translate")), "prepared before the languages were looked at"
    corpus = read_corpus(config(on_error="skip"))
    assert corpus.train == [Example("olá train", "hello train", "tiny_translate:train:1")]
    assert corpus.test == [Example("olá test", "hello test", "tiny_translate:test:1")]
    assert corpus.skipped == 3
    for wrong, message in (
        (config(), "tiny_translate:train:2: the target is empty"),
        (config(validation="val"), r"data.path: TFDS cannot give 'tiny_translate': .*val"),
    ):
        with pytest.raises(UserError, match=message):
            read_corpus(wrong)


def test_a_data_set_unknown_to_tfds_is_one_line(capfd):
    with pytest.raises(UserError) as caught:
        read_corpus(DataConfig(name="tfds", path="ted_hrl_translate/pt_to_en"))
    message = "data.path: TFDS has no data set 'ted_hrl_translate/pt_to_en'; did you mean 'ted_hrlr_translate'?"
    assert str(caught.value) == message
    assert capfd.readouterr() == ("", "")
