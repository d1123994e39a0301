"""The meaning of the phrasebook's sentences, independent of the language."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fxf.phrasebook.adjectives import Adjective
from fxf.phrasebook.nouns import Noun
from fxf.phrasebook.verbs import BE, THERE_IS, Pronoun, Verb, Words

Mood = Literal["statement", "negative", "question", "where"]


class NounPhrase(NamedTuple):
    """A noun with its determiner, adjective and owner. The determiner is English, or "" for a quantity of a mass noun.

    "this" and "a" also mean their plurals. With an owner the determiner is "the", although English says "the king's
    horse".
    """

    noun: Noun
    determiner: str
    plural: bool = False
    adjective: Adjective | None = None
    owner: "NounPhrase | None" = None


class Place(NamedTuple):
    """The place where something is or happens."""

    preposition: Words
    at: NounPhrase


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause; the parts that are None are absent.

    `modal` comes before the infinitive of `verb`. `adjective` describes the subject, in comparison with `than` if that
    is present. `content` is the clause that the subject says or thinks.
    """

    subject: NounPhrase | Pronoun
    verb: Verb
    mood: Mood = "statement"
    modal: Verb | None = None
    adjective: Adjective | None = None
    than: NounPhrase | None = None
    object: NounPhrase | None = None
    recipient: NounPhrase | None = None
    place: Place | None = None
    time: Words | None = None
    content: "Clause | None" = None


def person(subject: NounPhrase | Pronoun) -> int:
    """Returns the index of the verb's form: 0 to 4 for I, you, he or she, we, they."""
    if isinstance(subject, Pronoun):
        return subject.person
    return 4 if subject.plural else 2


def noun_phrases(clause: Clause) -> list[NounPhrase]:
    """Returns every noun phrase of `clause`, with owners and those of `content`."""
    place = clause.place.at if clause.place else None
    phrases = []
    for part in (clause.subject, clause.than, clause.object, clause.recipient, place):
        while isinstance(part, NounPhrase):
            phrases.append(part)
            part = part.owner
    return phrases + (noun_phrases(clause.content) if clause.content else [])


def combinations(clause: Clause) -> Iterator[tuple[str, str]]:
    """Yields (noun, word), in English, for each noun and each verb or adjective that belongs to it.

    A verb belongs to the nouns of its subject, object and recipient; "be" and "there is" do not count. An adjective
    belongs to the noun beside it or to the noun that it describes.
    """
    compared = [part for part in (clause.subject, clause.than) if isinstance(part, NounPhrase)]
    involved = [part for part in (clause.subject, clause.object, clause.recipient) if isinstance(part, NounPhrase)]
    for phrase in noun_phrases(clause):
        if phrase.adjective:
            yield phrase.noun.english, phrase.adjective.english
    if clause.adjective:
        yield from ((phrase.noun.english, clause.adjective.english) for phrase in compared)
    if clause.verb not in (BE, THERE_IS):
        verb = f"{clause.verb.english} {clause.verb.english_link}".strip()
        yield from ((phrase.noun.english, verb) for phrase in involved)
    if clause.content:
        yield from combinations(clause.content)
