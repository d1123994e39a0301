"""The random parts of the phrasebook's sentences: noun phrases, places, times."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from fxf.phrasebook.adjectives import ADJECTIVES, Adjective
from fxf.phrasebook.grammar import Clause, Mood, NounPhrase, Place
from fxf.phrasebook.nouns import Noun, nouns
from fxf.phrasebook.verbs import (
    BEHIND,
    FUTURE_TIMES,
    GIVING,
    GOING,
    HABITUAL_TIMES,
    HAVING_TO,
    IN,
    IN_FRONT_OF,
    NEAR,
    ON,
    PRONOUNS,
    UNDER,
    WANTING,
    Pronoun,
    Words,
)

OptionT = TypeVar("OptionT")
Kinds = frozenset[str]
Spots = tuple[tuple[Words, Kinds], ...]

PERSON = frozenset({"person"})
BELONGING = frozenset({"pet", "goods", "home", "readable", "kin"})
POSSESSIVES = ("my", "your", "his", "her", "our")
NUMERALS = ("two", "three", "four", "five", "ten")
# Verbs without "want to" or "be going to".
STATES = frozenset({"want", "know", "come"})
# Verbs for things that people do not do every day or every Sunday.
RARITIES = STATES | {"write", "choose", "hide", "break", "repair", "draw", "find", "admire", "invite"}
RARITIES |= {verb.english for verb in GIVING}

_BY_A_BUILDING: Spots = (
    (NEAR, frozenset({"landmark"})),
    (BEHIND, frozenset({"building"})),
    (IN_FRONT_OF, frozenset({"building"})),
)
# The places of a noun by its first kind in this table: prepositions, and the kinds of noun after them.
SPOTS: dict[str, Spots] = {
    "person": ((IN, frozenset({"inside", "outdoors"})), *_BY_A_BUILDING),
    "indoor": (
        (ON, frozenset({"support"})),
        (UNDER, frozenset({"support", "shade"})),
        (BEHIND, frozenset({"furniture", "opening"})),
        (IN, frozenset({"home", "outdoors"})),
    ),
    "animal": (
        (IN, frozenset({"outdoors"})),
        (UNDER, frozenset({"shade"})),
        (BEHIND, frozenset({"building", "shade"})),
        (NEAR, frozenset({"landmark"})),
    ),
    "portable": (
        (IN, frozenset({"container"})),
        (ON, frozenset({"support"})),
        (UNDER, frozenset({"support"})),
    ),
    "vehicle": _BY_A_BUILDING,
    "building": _BY_A_BUILDING,
}
SWIMMING_SPOTS: Spots = ((IN, frozenset({"swum"})),)


class Draw:
    """A reproducible sequence of choices; Python guarantees the same `random()` for a seed in every version."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed).random

    def one(self, options: Sequence[OptionT]) -> OptionT:
        return options[int(self._random() * len(options))]

    def chance(self, probability: float) -> bool:
        return self._random() < probability


@cache
def _attributes(noun: Noun) -> tuple[Adjective, ...]:
    return tuple(adjective for adjective in ADJECTIVES if "a" in adjective.uses and adjective.kinds & noun.kinds)


def draw_adjective(draw: Draw, noun: Noun, probability: float) -> Adjective | None:
    attributes = _attributes(noun)
    return draw.one(attributes) if attributes and draw.chance(probability) else None


def draw_noun_phrase(draw: Draw, noun: Noun, *, loose: bool = False, described: float = 0.35) -> NounPhrase:
    """Draws a phrase around `noun`, with an adjective at probability `described`.

    Only a loose phrase may be indefinite or counted, because "a" is rare in a negation.
    """
    if "mass" in noun.kinds:
        return NounPhrase(noun, "the")
    plural = "single" not in noun.kinds and draw.chance(0.3)
    if "kin" in noun.kinds:
        return NounPhrase(noun, draw.one(POSSESSIVES), plural)
    determiners = ["the", "the", "this"]
    if noun.kinds & BELONGING:
        determiners.append(draw.one(POSSESSIVES))
    if loose:
        determiners.append(draw.one(NUMERALS) if plural else "a")
    return NounPhrase(noun, draw.one(determiners), plural, draw_adjective(draw, noun, described))


def draw_subject(draw: Draw, kinds: Kinds, mood: Mood, *, loose: bool = False) -> NounPhrase | Pronoun:
    """Draws a subject of any of `kinds`; `loose` counts only in statements."""
    if "person" in kinds and draw.chance(0.3):
        # Nobody asks "do I sleep?".
        return draw.one([pronoun for pronoun in PRONOUNS if mood != "question" or pronoun.english not in ("I", "we")])
    return draw_noun_phrase(draw, draw.one(nouns(kinds)), loose=loose and mood == "statement", described=0.25)


def spots(subject: NounPhrase | Pronoun) -> Spots:
    """Returns the possible places of `subject`."""
    if isinstance(subject, Pronoun):
        return SPOTS["person"]
    return next(spots for kind, spots in SPOTS.items() if kind in subject.noun.kinds)


def draw_place(draw: Draw, spots: Spots) -> Place:
    preposition, kinds = draw.one(spots)
    noun = draw.one(nouns(kinds))
    determiners = ["the", "the", "this"]
    if "home" in noun.kinds:
        determiners.append(draw.one(POSSESSIVES))
    adjective = draw_adjective(draw, noun, 0.2)
    if adjective and adjective.english == "empty":
        adjective = None
    plural = preposition is NEAR and "single" not in noun.kinds and draw.chance(0.15)
    return Place(preposition, NounPhrase(noun, draw.one(determiners), plural, adjective))


def draw_time(draw: Draw, clause: Clause) -> Clause:
    """Returns an action, sometimes with a modal ("want to", "must", "be going to") or a time added."""
    if clause.verb.english not in STATES and draw.chance(0.35):
        modals = [GOING, GOING, WANTING]
        if clause.verb.subjects == PERSON and clause.mood != "question":
            modals.append(HAVING_TO)
        modal = draw.one(modals)
        dated = modal is not WANTING and not clause.place and draw.chance(0.3)
        return replace(clause, modal=modal, time=draw.one(FUTURE_TIMES) if dated else None)
    if clause.verb.english not in RARITIES and clause.mood != "negative" and not clause.place and draw.chance(0.25):
        return replace(clause, time=draw.one(HABITUAL_TIMES))
    return clause
