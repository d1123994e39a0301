"""TensorFlow Datasets without TensorFlow: sentence pairs are prepared once in TFDS's folder, and read back.

Importing TFDS takes most of a second, so other modules import this one inside functions.
"""

import contextlib
import hashlib
import io
import logging
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import downloader
from tensorflow_datasets.proto import tf_example_pb2

from fxf.config import one_of
from fxf.data.sentence_files import Line, good_lines
from fxf.errors import UserError, nearest
from fxf.files import digest

SPLITS = ("train", "validation", "test")
VERSION = "1.0.0"  # of the stored examples; raise it when the same files would give other examples

Splits = dict[str, list[Line]]


class SentencePairs(tfds.core.GeneratorBasedBuilder):
    """Sentence pairs with their line numbers. The config's name holds a digest of their files and options."""

    VERSION = tfds.core.Version(VERSION)

    def __init__(self, name: str, splits: Splits | None = None, skipped: int = 0) -> None:
        self._lines = splits or {}
        self._skipped = skipped
        config = tfds.core.BuilderConfig(name=name)
        super().__init__(config=config, file_format="array_record", data_dir=data_dir())

    def _info(self) -> Any:
        text = tfds.features.Text()
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {"number": tfds.features.Scalar(np.int64), "source": text, "target": text}
            ),
            disable_shuffling=True,
            metadata=tfds.core.MetadataDict(skipped=self._skipped),
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        return {split: self._generate_examples(lines) for split, lines in self._lines.items()}

    def _generate_examples(self, lines: Sequence[Line]) -> Iterator[tuple[int, dict[str, Any]]]:
        return ((line.number, line._asdict()) for line in lines)


def data_dir() -> str:
    """Returns TFDS's usual folder for prepared data; TFDS itself reads the variable only when it is imported."""
    return os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def _reason(error: Exception) -> str:
    return textwrap.shorten(str(error), 200, placeholder=" …") or type(error).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps TFDS from printing progress and logging to the terminal."""
    tfds.disable_progress_bar()
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)


def prepared(
    kind: str, options: tuple[Any, ...], contents: Sequence[bytes], read: Callable[[], tuple[Splits, int]]
) -> tuple[Splits, int]:
    """Returns the sentence pairs of each split and the number of lines skipped.

    `read` is called for them only if they were not prepared before from the same `contents` and `options`.

    Raises:
      UserError: from `read`; or the folder for prepared data cannot be written, or its data are damaged.
    """
    digest = hashlib.blake2b(repr((options, [len(content) for content in contents])).encode(), digest_size=16)
    for content in contents:
        digest.update(content)
    name = f"{kind}-{digest.hexdigest()}"
    with blaming_the_folder(name), quiet():
        is_prepared = SentencePairs(name).is_prepared()
    if not is_prepared:
        splits, skipped = read()
        with blaming_the_folder(name), quiet():
            _store(name, splits, skipped)
    with blaming_the_folder(name), quiet():
        builder = SentencePairs(name)
        return {split: _lines(builder, split) for split in SPLITS}, builder.info.metadata["skipped"]


@contextlib.contextmanager
def blaming_the_folder(name: str) -> Iterator[None]:
    """Turns any error into a UserError that names the folder for prepared data."""
    try:
        yield
    except Exception as error:  # the system, the reader of a damaged file, and TFDS raise different types
        folder = f"{data_dir()}/{SentencePairs.name}/{name}"
        raise UserError(f"{folder}: {_reason(error)}; remove it, or set TFDS_DATA_DIR to another folder") from error


def _store(name: str, splits: Splits, skipped: int) -> None:
    builder = SentencePairs(name, splits, skipped)
    try:
        builder.download_and_prepare()
    except OSError:
        if not builder.is_prepared():  # else another process wrote the same data first
            raise


def _lines(builder: SentencePairs, split: str) -> list[Line]:
    """Returns a split's lines; parses them here, because TFDS takes three times as long."""
    records = builder.as_data_source(split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES)
    lines = []
    for record in records.__getitems__(range(len(records))):
        feature = tf_example_pb2.Example.FromString(record).features.feature
        source, target = (feature[side].bytes_list.value[0].decode() for side in ("source", "target"))
        lines.append(Line(feature["number"].int64_list.value[0], source, target))
    return lines


@contextlib.contextmanager
def blaming_the_data_set(name: str) -> Iterator[None]:
    """Turns any error into a UserError that names the public data set."""
    downloader.MAX_RETRIES = 5  # TFDS's ten take minutes to find that there is no network
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # its threads log each retry, even after the last one
    try:
        yield
    except UserError:
        raise
    except tfds.core.DatasetNotFoundError:
        near = nearest(name.split("/")[0], tfds.list_builders(with_community_datasets=False))
        raise UserError(f"data.path: TFDS has no data set '{name}'{near}") from None
    except Exception as error:  # data sets have many authors, whose code raises any type
        raise UserError(f"data.path: TFDS cannot give '{name}': {_reason(error)}") from error


def _downloaded(name: str, fields: Mapping[str, str]) -> Any:
    """Downloads a public data set, and returns its builder. `fields` are the names of texts, by their config key."""
    with quiet():
        builder = tfds.builder(name, data_dir=data_dir(), try_gcs=False)
        texts = sorted(key for key, x in builder.info.features.items() if isinstance(x, tfds.features.Text))
    for key, field in fields.items():
        one_of(field, texts, f"data.{key}")
    with quiet():
        builder.download_and_prepare(file_format="array_record")
    return builder


def _manifest(builder: Any, splits: Sequence[str]) -> list[Any]:
    """Returns the name of a data set, and the names and sizes of the files of its splits."""
    files = [path for split in splits for path in builder.info.splits[split].filepaths]
    return [builder.info.full_name, *((path.name, path.stat().length) for path in files)]


def public(
    name: str, languages: tuple[str, str], splits: Sequence[str], skip: bool
) -> tuple[list[list[Line]], int, str]:
    """Returns the sentence pairs of each split of a public TFDS data set, the number of skipped bad ones, and a digest.

    The digest covers the names and sizes of the data set's files, not their content, which may be large.

    Raises:
      UserError: TFDS does not know the data set or cannot get it; or a split or feature is missing.
    """
    with blaming_the_data_set(name):
        builder = _downloaded(name, dict(zip(("source", "target"), languages, strict=True)))
        with quiet():
            sources = builder.as_data_source(list(splits))
            manifest = _manifest(builder, splits)
    found, skipped = [], 0
    for split, source in zip(splits, sources, strict=True):
        pairs = ((example[languages[0]], example[languages[1]]) for example in source.__getitems__(range(len(source))))
        lines, n = good_lines(pairs, [f"{name}:{split}"] * 2, skip)
        found.append(lines)
        skipped += n
    return found, skipped, digest(repr(manifest).encode())


def public_texts(name: str, field: str, split: str) -> tuple[list[Any], Iterator[bytes]]:
    """Returns the names and sizes of the files of a public TFDS data set's split, and the texts of a field in order.

    Raises:
      UserError: as `public`.
    """
    with blaming_the_data_set(name):
        builder = _downloaded(name, {"field": field})
        with quiet():
            source = builder.as_data_source(split)
            manifest = _manifest(builder, [split])
    return manifest, (source[i][field] for i in range(len(source)))
