"""The sentence patterns of the phrasebook, and the sentences drawn from them."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from fxf.phrasebook.adjectives import ADJECTIVES, RIVALS, Adjective
from fxf.phrasebook.grammar import Clause, Mood, NounPhrase
from fxf.phrasebook.nouns import Noun, nouns
from fxf.phrasebook.parts import (
    BELONGING,
    NUMERALS,
    PERSON,
    SPOTS,
    SWIMMING_SPOTS,
    Draw,
    draw_adjective,
    draw_noun_phrase,
    draw_place,
    draw_subject,
    draw_time,
    spots,
)
from fxf.phrasebook.verbs import (
    BE,
    GIVING,
    HAVE,
    INTRANSITIVE,
    MOVING,
    PRONOUNS,
    SAYING,
    TAKING_MASS,
    THERE_IS,
    TRANSITIVE,
    Pronoun,
)

MOODS: tuple[Mood, ...] = ("statement", "statement", "negative", "question")
# A comparison needs two things of one category.
CATEGORIES = ("adult", "kin", "animal", "food", "readable", "clothes", "furniture", "vehicle", "instrument", "building")
PREDICATES = [adjective for adjective in ADJECTIVES if "p" in adjective.uses]
COMPARATIVES = [adjective for adjective in ADJECTIVES if adjective.comparative]


def describe(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "the red car is expensive"."""
    adjective = draw.one(PREDICATES)
    subject = draw_subject(draw, adjective.kinds, mood)
    if isinstance(subject, NounPhrase) and subject.adjective and _rivals(subject.adjective, adjective):
        subject = subject._replace(adjective=None)
    return Clause(subject, BE, mood, adjective=adjective)


def _rivals(one: Adjective, other: Adjective) -> bool:
    return one == other or any({one.english, other.english} <= rivals for rivals in RIVALS)


def compare(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "my horse is faster than your donkey"."""
    adjective = draw.one(COMPARATIVES)
    one, other = (draw_noun_phrase(draw, noun, described=0) for noun in draw.one(_comparable(adjective)))
    if "kin" not in other.noun.kinds and draw.chance(0.25):
        other = other._replace(determiner="a", plural=False)
    return Clause(one, BE, mood, adjective=adjective, than=other)


@cache
def _comparable(adjective: Adjective) -> tuple[tuple[Noun, Noun], ...]:
    groups = [[noun for noun in nouns(adjective.kinds) if category in noun.kinds] for category in CATEGORIES]
    return tuple((one, other) for group in groups for one in group for other in group if one != other)


def act(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "the birds sing behind the church"."""
    verb = draw.one(INTRANSITIVE)
    subject = draw_subject(draw, verb.subjects, mood, loose=True)
    place = None
    if verb.places and draw.chance(0.5):
        place = draw_place(draw, SWIMMING_SPOTS if verb.places == "swum" else spots(subject))
    return draw_time(draw, Clause(subject, verb, mood, place=place))


def act_on(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "the waitress washes two cups" or "my uncle looks for his daughter"."""
    verb = draw.one(TRANSITIVE)
    noun = draw.one(nouns(verb.objects))
    subject = draw_subject(draw, verb.subjects, mood, loose=True)
    # Some Spanish verbs drop "a" before an indefinite person, so only definite persons are objects.
    loose = mood == "statement" and "person" not in noun.kinds
    target = draw_noun_phrase(draw, noun, loose=loose, described=0 if verb.english in ("write", "break") else 0.35)
    if mood == "question" and target.determiner == "the" and not target.plural and "person" not in noun.kinds:
        target = target._replace(determiner=draw.one(("the", "a")))
    if verb.english == "play":
        target = NounPhrase(noun, "the")
    elif verb.english == "wear":
        determiner = "the" if subject.plural or target.plural else target.determiner
        target = target._replace(plural=subject.plural, determiner=determiner)
    return draw_time(draw, Clause(subject, verb, mood, object=target))


def take_some(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "the boys do not drink hot tea"."""
    verb = draw.one(TAKING_MASS)
    noun = draw.one(nouns(verb.objects))
    some = NounPhrase(noun, "", adjective=draw_adjective(draw, noun, 0.3 if verb.english in ("drink", "want") else 0))
    return draw_time(draw, Clause(draw_subject(draw, PERSON, mood, loose=True), verb, mood, object=some))


def give(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "the girl gives the flower to her mother"."""
    verb = draw.one(GIVING)
    given = draw_noun_phrase(draw, draw.one(nouns(verb.objects)), loose=mood == "statement", described=0.2)
    subject = draw_subject(draw, PERSON, mood, loose=True)
    recipient = draw_noun_phrase(draw, draw.one(nouns(PERSON)), described=0.15)
    return draw_time(draw, Clause(subject, verb, mood, object=given, recipient=recipient))


def have(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "the prince does not have a horse" or "I have three brothers"."""
    subject = draw_subject(draw, PERSON, mood)
    if mood == "statement" and draw.chance(0.2):
        noun = draw.one([noun for noun in nouns(frozenset({"kin"})) if "single" not in noun.kinds])
        return Clause(subject, HAVE, mood, object=NounPhrase(noun, draw.one(NUMERALS[:3]), True))
    noun = draw.one(nouns(HAVE.objects))
    # After "no tener" Spanish drops the article, except before an adjective, so a negation has no adjective.
    adjective = None if mood == "negative" else draw_adjective(draw, noun, 0.4)
    several = mood == "statement" and draw.chance(0.3)
    having = NounPhrase(noun, draw.one(NUMERALS) if several else "a", several, adjective)
    return Clause(subject, HAVE, mood, object=having)


def move(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "your aunt goes to the market every Sunday"."""
    verb = draw.one(MOVING)
    noun = draw.one(nouns(verb.objects))
    goal = NounPhrase(noun, draw.one(("the", "the", "this")), adjective=draw_adjective(draw, noun, 0.25))
    return draw_time(draw, Clause(draw_subject(draw, PERSON, mood, loose=True), verb, mood, object=goal))


def locate(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "the keys are under the bed"."""
    subject = draw_subject(draw, frozenset({draw.one(tuple(SPOTS))}), mood)
    return Clause(subject, BE, mood, place=draw_place(draw, spots(subject)))


def exist(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "there is no cat in the garden"."""
    kind = draw.one(tuple(SPOTS))
    noun = draw.one(nouns(frozenset({"adult", "child"} if kind == "person" else {kind})))
    several = mood == "statement" and draw.chance(0.4)
    numerals = NUMERALS[:2] if kind == "building" else NUMERALS
    adjective = draw_adjective(draw, noun, 0.1 if mood == "negative" else 0.35)
    thing = NounPhrase(noun, draw.one(numerals) if several else "a", several, adjective)
    return Clause(thing, THERE_IS, mood, place=draw_place(draw, spots(thing)))


def where(draw: Draw, mood: Mood) -> Clause:
    """Draws a question like "where is the old bridge"."""
    kind = draw.one((*SPOTS, "place", "goods", "pet"))
    return Clause(draw_noun_phrase(draw, draw.one(nouns(frozenset({kind}))), described=0.5), BE, "where")


def belong(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "the queen's dress is beautiful" or "I wash my brother's car"."""
    clause = draw.one((describe, act_on, locate))(draw, mood)
    owner = draw_noun_phrase(draw, draw.one(nouns(PERSON)), described=0)._replace(plural=False)
    part = "object" if clause.object else "subject"
    phrase = getattr(clause, part)
    # Only some nouns can have an owner.
    if isinstance(phrase, Pronoun) or not phrase.noun.kinds & BELONGING or clause.verb.english == "play":
        return clause
    return replace(clause, **{part: phrase._replace(determiner="the", owner=owner)})


def report(draw: Draw, mood: Mood) -> Clause:
    """Draws a clause like "she thinks that her brother is tired"."""
    content = draw.one((describe, describe, act, locate))(draw, "negative" if mood == "negative" else "statement")
    subject = draw_subject(draw, PERSON, "statement")
    if isinstance(content.subject, Pronoun):
        # "He says that he is ill" leaves open who is ill; Spanish would have to say it.
        subject = draw.one([pronoun for pronoun in PRONOUNS if pronoun.english in ("I", "you", "we")])
    return Clause(subject, draw.one(SAYING), content=content)


# The relative frequency of each pattern.
PATTERNS: dict[Callable[[Draw, Mood], Clause], int] = {
    describe: 6,
    compare: 4,
    act: 7,
    act_on: 14,
    take_some: 4,
    give: 5,
    have: 3,
    move: 4,
    locate: 4,
    exist: 4,
    where: 2,
    belong: 5,
    report: 4,
}


def clauses(count: int) -> Iterator[Clause]:
    """Yields `count` clauses, some more than once, the same ones in the same order each time."""
    draw = Draw("phrasebook")
    patterns = [pattern for pattern, weight in PATTERNS.items() for _ in range(weight)]
    for _ in range(count):
        yield draw.one(patterns)(draw, draw.one(MOODS))
