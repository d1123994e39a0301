"""Public data sets of TensorFlow Datasets, read without TensorFlow.

Importing TFDS takes most of a second, so other modules import this one inside functions.
"""

import contextlib
import os
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import downloader

from fxf.base.config import one_of
from fxf.base.errors import UserError


def data_dir() -> str:
    """Returns TFDS's default data folder. TFDS itself reads the variable only on import."""
    return os.path.expanduser(os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets")


def read_public(name: str, fields: Mapping[str, str], splits: Sequence[str]) -> tuple[list[Any], list[Iterator[Any]]]:
    """Downloads a data set once, and returns its manifest and the texts of each split in order, as bytes.

    The manifest has the data set's name and the names and sizes of its files. It leaves out their content, which may be
    large.

    Args:
      fields: the features that hold the texts, by the config key that names them.

    Raises:
      UserError: TFDS does not know the data set or cannot get it; or a split or feature is missing.
    """
    downloader.MAX_RETRIES = 5  # without a network, TFDS's default of ten takes minutes to fail
    try:
        with contextlib.redirect_stdout(sys.stderr):  # TFDS prints about downloads; stdout is for results
            builder = tfds.builder(name, data_dir=data_dir(), try_gcs=False)
            texts = sorted(key for key, x in builder.info.features.items() if isinstance(x, tfds.features.Text))
            for key, field in fields.items():
                one_of(field, texts, f"data.{key}")
            builder.download_and_prepare(file_format="array_record")
            sources = builder.as_data_source(list(splits))
            files = [path for split in splits for path in builder.info.splits[split].filepaths]
            manifest = [builder.info.full_name, *((path.name, path.stat().length) for path in files)]
    except UserError:
        raise
    except Exception as error:  # the code of a data set may raise any type
        why = textwrap.shorten(str(error), 200, placeholder=" …") or type(error).__name__
        raise UserError(f"data.path: TFDS cannot load '{name}': {why}") from error
    return manifest, [(tuple(example[x] for x in fields.values()) for example in source) for source in sources]
