import pytest

from fxf.base.errors import UserError
from fxf.data.corpus import DataConfig, Example, read_corpus
from fxf.data.documents import DocumentsConfig, read, sources


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data set with two texts in each of three splits, one of them empty; its folder."""
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


def pairs(**more):
    keys = {"name": "tfds", "path": "tiny_translate", "source": "pt", "target": "en", "validation": "validation"}
    return read_corpus(DataConfig(**keys | more))


def documents(**more):
    config = DocumentsConfig(path="tiny_translate", format="tfds", **more)
    (source,) = sources(config)
    return source, [text for text, _ in read(config, source)]


def test_the_pairs_and_the_texts_of_a_data_set_are_read_by_its_name(tiny, capfd):
    corpus = pairs(on_error="skip")
    assert corpus.train == [Example("olá train", "hello train", "tiny_translate:train:1")]
    assert corpus.test == [Example("olá test", "hello test", "tiny_translate:test:1")]
    assert corpus.skipped == 3 and list(corpus.digests) == ["data.path"]
    source, texts = documents(field="pt", split="test")
    assert texts == ["olá test", "olá"]
    assert source.name == "tiny_translate/1.0.0:test" and source.digest() != corpus.digests["data.path"]
    assert capfd.readouterr().out == ""


def test_what_a_data_set_lacks_is_named(tiny):
    for read_it, keys, message in (
        (pairs, {"source": "de"}, r"data.source: expected one of en, pt; got 'de'"),
        (documents, {}, r"data.field: expected one of en, pt; got 'text'"),
        (pairs, {}, "tiny_translate:train:2: the target is empty"),
        (documents, {"field": "en", "split": "val"}, r"data.path: TFDS cannot give 'tiny_translate': .*val"),
    ):
        with pytest.raises(UserError, match=message):
            read_it(**keys)
        if "expected one of" in message:
            assert not list(tiny.rglob("tiny_translate")), "prepared before the features were looked at"
