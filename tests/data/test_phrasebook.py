from collections import Counter

import pytest

from fxf.base.files import digest
from fxf.data.phrasebook import english, phrases

DIGESTS = {"fr": "45e4b43acdc3769a33188cd5acedf2cf", "es": "fc2f71f8dd0a3bbef8fe5f9d1314be68"}


def test_a_sentence_has_the_same_english_split_and_place_in_both_languages():
    assert [phrase[:2] for phrase in phrases("fr")] == [phrase[:2] for phrase in phrases("es")]
    assert Counter(phrase.split for phrase in phrases("fr")) == {"train": 39_768, "validation": 2_400, "test": 2_400}
    assert english().splitlines() == [phrase.source for phrase in phrases("fr")]
    assert len(set(english().splitlines())) == 44_568


@pytest.mark.parametrize(("language", "expected"), DIGESTS.items())
def test_the_phrase_book_is_the_one_that_results_were_measured_on(language, expected):
    assert digest("".join("\t".join(phrase) + "\n" for phrase in phrases(language)).encode()) == expected
