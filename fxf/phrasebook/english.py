"""English for the phrasebook."""

import re
from functools import cache

from fxf.phrasebook.grammar import Clause, NounPhrase, person
from fxf.phrasebook.verbs import BE, GOING, HAVING_TO, THERE_IS, Pronoun

_PLURALS = {
    "man": "men",
    "woman": "women",
    "mouse": "mice",
    "wolf": "wolves",
    "knife": "knives",
    "scarf": "scarves",
    "tomato": "tomatoes",
}
_BE = ("am", "are", "is", "are", "are")


@cache
def plural(noun: str) -> str:
    """Returns the plural of an English noun."""
    if noun in _PLURALS:
        return _PLURALS[noun]
    if re.search("(s|x|ch|sh)$", noun):
        return f"{noun}es"
    return re.sub("([^aeiou])y$", r"\1ie", noun) + "s"


@cache
def conjugate(verb: str, person: int) -> str:
    """Returns the present of an English verb; `person` counts I, you, he, we, they from 0."""
    if verb == "be":
        return _BE[person]
    if person != 2 or verb == "must":
        return verb
    if verb == "have":
        return "has"
    if re.search("(o|s|x|ch|sh)$", verb):
        return f"{verb}es"
    return re.sub("([^aeiou])y$", r"\1ie", verb) + "s"


def sentence(clause: Clause) -> str:
    """Returns `clause` as an English sentence."""
    text = " ".join(" ".join(_clause(clause)).split())
    text = re.sub(r"\ba (?=[aeiou])", "an ", text)
    mark = "?" if clause.mood in ("question", "where") else "."
    return f"{text[0].upper()}{text[1:]}{mark}"


def _noun_phrase(phrase: NounPhrase, determiner: str | None = None) -> list[str]:
    if phrase.owner:
        before = " ".join(_noun_phrase(phrase.owner)) + "'s"
    else:
        before = phrase.determiner if determiner is None else determiner
    if before == "this" and phrase.plural:
        before = "these"
    noun = phrase.noun.english
    adjective = phrase.adjective.english if phrase.adjective else ""
    return [before, adjective, plural(noun) if phrase.plural else noun]


def _clause(clause: Clause) -> list[str]:
    return [*_subject_and_verb(clause), *_rest(clause)]


def _subject_and_verb(clause: Clause) -> list[str]:
    head, index = clause.modal or clause.verb, person(clause.subject)
    negative = "not" if clause.mood == "negative" else ""
    if head is THERE_IS:
        assert isinstance(clause.subject, NounPhrase)
        what = _noun_phrase(clause.subject, "no" if negative else None)
        order = [_BE[index], "there"] if clause.mood == "question" else ["there", _BE[index]]
        return [*order, *what]
    subject = [clause.subject.english] if isinstance(clause.subject, Pronoun) else _noun_phrase(clause.subject)
    finite = conjugate(head.english, index)
    infinitive = [head.english_link, clause.verb.english] if clause.modal else []
    if head in (BE, GOING, HAVING_TO):
        if clause.mood == "where":
            return ["where", finite, *subject]
        if clause.mood == "question":
            return [finite, *subject, *infinitive]
        return [*subject, finite, negative, *infinitive]
    do = conjugate("do", index)
    if clause.mood == "question":
        return [do, *subject, head.english, *infinitive]
    if negative:
        return [*subject, do, "not", head.english, *infinitive]
    return [*subject, finite, *infinitive]


def _rest(clause: Clause) -> list[str]:
    words = []
    if clause.adjective:
        words.append(clause.adjective.comparative if clause.than else clause.adjective.english)
    if clause.than:
        words += ["than", *_noun_phrase(clause.than)]
    if clause.object:
        words += [clause.verb.english_link, *_noun_phrase(clause.object)]
    if clause.recipient:
        words += ["to", *_noun_phrase(clause.recipient)]
    if clause.place:
        words += [clause.place.preposition.english, *_noun_phrase(clause.place.at)]
    if clause.content:
        words += ["that", *_clause(clause.content)]
    if clause.time:
        words.append(clause.time.english)
    return words
