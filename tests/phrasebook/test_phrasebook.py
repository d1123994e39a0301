import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

import pytest

import fxf.phrasebook
from fxf.phrasebook import SIX, Phrase, english, french, phrasebook, sensible, spanish, split, split_of_pair
from fxf.phrasebook.adjectives import ADJECTIVES, RIVALS
from fxf.phrasebook.grammar import Clause, combinations
from fxf.phrasebook.nouns import NOUNS
from fxf.phrasebook.parts import SPOTS
from fxf.phrasebook.patterns import CATEGORIES, clauses
from fxf.phrasebook.verbs import GIVING, HAVE, INTRANSITIVE, MOVING, SAYING, TAKING_MASS, TRANSITIVE

VERBS = (*INTRANSITIVE, *TRANSITIVE, *TAKING_MASS, *GIVING, *MOVING, *SAYING, HAVE)


@pytest.fixture(scope="module", autouse=True)
def drawn_once() -> Iterator[None]:
    """Draws the clauses of both languages, and writes them in English, once for both."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fxf.phrasebook, "clauses", cache(lambda n: tuple(clauses(n))))
        patch.setattr(fxf.phrasebook, "split", cache(split))
        patch.setattr(english, "sentence", cache(english.sentence))
        yield


def corpus(language: str) -> tuple[Phrase, ...]:
    return phrasebook(language)


@cache
def drawn() -> list[Clause]:
    return list(clauses(16_000))


def words(texts: list[str]) -> set[str]:
    """Returns the words and marks of `texts`; "l'arbre" is two words, "grand-père" is one."""
    between_spaces = {piece for text in texts for piece in text.lower().split()}
    return {word for piece in between_spaces for word in re.findall(r"[\w-]+'?|[^\w\s]", piece)}


@pytest.mark.parametrize("language", ["fr", pytest.param("es", marks=pytest.mark.thorough)])
def test_the_phrasebook_has_a_fixed_size_and_shape(language: str) -> None:
    phrases = corpus(language)
    assert 30_000 <= len(phrases) <= 60_000
    assert len({phrase.source for phrase in phrases}) == len(phrases)
    assert all(3 <= len(phrase.source.split()) <= 12 for phrase in phrases)
    for held_out in ("validation", "test"):
        assert 1_500 <= sum(phrase.held_out == held_out for phrase in phrases) <= 3_000


def test_both_languages_have_the_same_english_sentences() -> None:
    assert [(p.source, p.held_out) for p in corpus("fr")] == [(p.source, p.held_out) for p in corpus("es")]
    assert list(clauses(300)) == list(clauses(300))  # as each language draws them


def test_the_phrasebook_does_not_depend_on_the_process() -> None:
    code = "from fxf.phrasebook.patterns import clauses; from fxf.phrasebook import english as e; "
    code += "print([e.sentence(c) for c in clauses(300)])"
    texts = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_a_sentence_in_english_settles_its_translation_and_its_split() -> None:
    first: dict[str, Clause] = {}
    for clause in drawn():
        other = first.setdefault(english.sentence(clause), clause)
        if other != clause:
            assert french.sentence(other) == french.sentence(clause)
            assert spanish.sentence(other) == spanish.sentence(clause)
            assert split(other) == split(clause)


def test_no_held_out_combination_is_in_training_and_each_of_its_parts_is() -> None:
    used: dict[str, set[tuple[str, str]]] = {"": set(), "validation": set(), "test": set()}
    for clause in filter(sensible, drawn()):
        used[split(clause)].update(combinations(clause))
    assert {split_of_pair(*pair) for pair in used[""]} == {""}
    for held_out in ("validation", "test"):
        kept = {pair for pair in used[held_out] if split_of_pair(*pair) == held_out}
        assert kept
        assert {noun for noun, _ in kept} <= {noun for noun, _ in used[""]}
        assert {word for _, word in kept} <= {word for _, word in used[""]}


@pytest.mark.parametrize("language", ["fr", "es"])
def test_every_held_out_word_form_is_in_training(language: str) -> None:
    for side in ("source", "target"):
        training = words([getattr(p, side) for p in corpus(language) if not p.held_out])
        held_out = words([getattr(p, side) for p in corpus(language) if p.held_out])
        assert held_out <= training


def test_every_word_is_used() -> None:
    text = " ".join(p.source for p in corpus("fr"))
    used = set(re.findall(r"\w+", text))
    for word in [entry.english for entry in (*NOUNS, *ADJECTIVES)]:
        assert used & {word, english.plural(word)}, word
    for verb in VERBS:
        assert used & {verb.english, english.conjugate(verb.english, 2)}, verb.english


def test_every_kind_that_is_chosen_by_is_the_kind_of_some_noun() -> None:
    kinds = {kind for noun in NOUNS for kind in noun.kinds}
    assert {kind for adjective in ADJECTIVES for kind in adjective.kinds} <= kinds
    assert {kind for verb in VERBS for kind in verb.subjects | verb.objects} <= kinds
    assert {kind for spots in SPOTS.values() for _, at in spots for kind in at} <= kinds
    assert {*SPOTS, *CATEGORIES} <= kinds
    assert {english for rivals in RIVALS for english in rivals} <= {adjective.english for adjective in ADJECTIVES}


@pytest.mark.parametrize("language", ["fr", "es"])
def test_spaces_are_single(language: str) -> None:
    assert not [text for phrase in corpus(language) for text in phrase[:2] if text != " ".join(text.split())]


def test_french_misses_no_elision_or_contraction() -> None:
    text = "\n".join(p.target.lower() for p in corpus("fr"))
    assert not re.search(r"\b(le|la|de|je|ne|que|ce|ma|ta|sa) (?:[aâeéèêiîoôuœ]|h(?!arpe|ibou))", text)
    masculine = "|".join(noun.french for noun in NOUNS if noun.french_gender == "m")
    before_vowel = rf"(?=[aâeéèêiîoôuœ]|h(?!ibou))(?:{masculine})\b"
    # After a singular determiner, for "ours" does not change in the plural.
    assert not re.search(rf"\b(?:le|ce|un|mon) (?:beau|nouveau|vieux) {before_vowel}", text)
    assert not re.search(r"\bde les?\b|\bà les?\b", text)
    assert not re.search(r"'(?![aâeéèêiîoôuœhy])", text)
    assert not re.search(r"l'(?:harpe|hibou)", text)


def test_spanish_misses_no_contraction() -> None:
    text = "\n".join(p.target.lower() for p in corpus("es"))
    assert not re.search(r"\b(?:a|de) el\b", text)
    assert not re.search(r"\b(?:la|una|ninguna) (?:agua|águila|arpa)\b", text)


def test_sentences_end_as_their_language_ends_them() -> None:
    for phrase in corpus("fr"):
        assert re.fullmatch(r"[^.?!]+(\.| \?)", phrase.target), phrase
    for phrase in corpus("es"):
        assert re.fullmatch(r"¿[^.?¿]+\?|[^.?¿]+\.", phrase.target), phrase
        assert phrase.target.startswith("¿") == phrase.source.endswith("?")


def test_the_six_phrases_are_short_words_in_lower_case() -> None:
    assert len(dict(SIX)) == 6
    for text in (side for pair in SIX for side in pair):
        assert text == text.lower()
        assert re.fullmatch(r"\w+( \w+){1,4}", text)
