import re
from collections import Counter

import pytest

from fxf.data.phrasebook import SIX, english, phrases
from fxf.files import digest

DIGESTS = {"fr": "45e4b43acdc3769a33188cd5acedf2cf", "es": "fc2f71f8dd0a3bbef8fe5f9d1314be68"}


def test_a_sentence_has_the_same_english_split_and_place_in_both_languages():
    assert [phrase[:2] for phrase in phrases("fr")] == [phrase[:2] for phrase in phrases("es")]
    assert Counter(phrase.split for phrase in phrases("fr")) == {"train": 39_768, "validation": 2_400, "test": 2_400}
    assert english().splitlines() == [phrase.source for phrase in phrases("fr")]
    assert len(set(english().splitlines())) == 44_568


@pytest.mark.parametrize(("language", "expected"), DIGESTS.items())
def test_the_phrase_book_is_the_one_that_results_were_measured_on(language, expected):
    assert digest("".join("\t".join(phrase) + "\n" for phrase in phrases(language)).encode()) == expected


@pytest.mark.parametrize("language", ["fr", "es"])
def test_every_held_out_word_is_in_training(language):
    def words(of_split, side):
        texts = [getattr(phrase, side) for phrase in phrases(language) if (phrase.split == "train") == of_split]
        return set(re.findall(r"\w+", " ".join(texts).lower()))

    for side in ("source", "target"):
        assert words(False, side) <= words(True, side)


def test_the_six_phrases_are_short_words_in_lower_case():
    assert len(dict(SIX)) == 6
    for text in (side for pair in SIX for side in pair):
        assert text == text.lower()
        assert re.fullmatch(r"\w+( \w+){1,4}", text)
