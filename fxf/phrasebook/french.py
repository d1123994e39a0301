"""French for the phrasebook: agreement, negation, elision and contraction."""

from functools import cache

from fxf.phrasebook.adjectives import Adjective
from fxf.phrasebook.grammar import Clause, NounPhrase, person
from fxf.phrasebook.verbs import HAVE, THERE_IS, Pronoun

_PLURALS = {
    "hibou": "hiboux",
    "neveu": "neveux",
    "grand-père": "grands-pères",
    "grand-mère": "grands-mères",
}
# The verbs that are not conjugated like "parler".
_PRESENTS = {
    "acheter": "achète achètes achète achetons achètent",
    "aller": "vais vas va allons vont",
    "appeler": "appelle appelles appelle appelons appellent",
    "attendre": "attends attends attend attendons attendent",
    "avoir": "ai as a avons ont",
    "boire": "bois bois boit buvons boivent",
    "choisir": "choisis choisis choisit choisissons choisissent",
    "connaître": "connais connais connaît connaissons connaissent",
    "courir": "cours cours court courons courent",
    "devoir": "dois dois doit devons doivent",
    "dire": "dis dis dit disons disent",
    "dormir": "dors dors dort dormons dorment",
    "écrire": "écris écris écrit écrivons écrivent",
    "envoyer": "envoie envoies envoie envoyons envoient",
    "être": "suis es est sommes sont",
    "lire": "lis lis lit lisons lisent",
    "ouvrir": "ouvre ouvres ouvre ouvrons ouvrent",
    "sourire": "souris souris sourit sourions sourient",
    "vendre": "vends vends vend vendons vendent",
    "venir": "viens viens vient venons viennent",
    "voir": "vois vois voit voyons voient",
    "vouloir": "veux veux veut voulons veulent",
}
# Masculine singular, feminine singular, plural.
_DETERMINERS = {
    "the": ("le", "la", "les"),
    "a": ("un", "une", ""),
    "this": ("ce", "cette", "ces"),
    "my": ("mon", "ma", "mes"),
    "your": ("ton", "ta", "tes"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "two": ("", "", "deux"),
    "three": ("", "", "trois"),
    "four": ("", "", "quatre"),
    "five": ("", "", "cinq"),
    "ten": ("", "", "dix"),
}
_ELIDED = frozenset({"le", "la", "je", "ne", "de", "que"})
_BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "ta": "ton", "sa": "son"}
_ADJECTIVE_BEFORE_VOWEL = {"beau": "bel", "nouveau": "nouvel", "vieux": "vieil"}
_CONTRACTED = {("à", "le"): "au", ("à", "les"): "aux", ("de", "le"): "du", ("de", "les"): "des"}
_ASPIRATED = frozenset({"harpe", "harpes", "hibou", "hiboux"})


@cache
def plural(word: str) -> str:
    """Returns the plural of a French noun or adjective."""
    if word in _PLURALS:
        return _PLURALS[word]
    if word.endswith("al"):
        return f"{word[:-2]}aux"
    if word.endswith(("s", "x")):
        return word
    return f"{word}x" if word.endswith("eau") else f"{word}s"


@cache
def conjugate(verb: str, person: int) -> str:
    """Returns the present of a French verb; `person` counts je, tu, il, nous, ils from 0."""
    if verb in _PRESENTS:
        return _PRESENTS[verb].split()[person]
    stem = verb.removesuffix("er")
    soft = "e" if person == 3 and stem.endswith("g") else ""
    return stem + soft + ("e", "es", "e", "ons", "ent")[person]


def before_vowel(word: str) -> bool:
    """Returns whether the word before `word` elides, because `word` begins with a vowel or a mute h."""
    return word == "y" or word[0] in "aâeéèêiîoôuœ" or (word[0] == "h" and word not in _ASPIRATED)


def sentence(clause: Clause) -> str:
    """Returns `clause` as a French sentence."""
    question = clause.mood == "question"
    words = " ".join(["est-ce que" if question else "", *_clause(clause)]).split()
    text = _join(words)
    mark = " ?" if clause.mood in ("question", "where") else "."
    return f"{text[0].upper()}{text[1:]}{mark}"


def _join(words: list[str]) -> str:
    """Returns the words as text with elision and contraction; works from the end, as "de le arbre" has no "du"."""
    joined: list[str] = []
    for word in reversed(words):
        after = joined[-1] if joined else "."
        if (word, after) in _CONTRACTED:
            joined[-1] = _CONTRACTED[word, after]
        elif word in _ELIDED and before_vowel(after):
            joined[-1] = f"{word[:-1]}'{after}"
        elif word in _BEFORE_VOWEL and before_vowel(after):
            joined.append(_BEFORE_VOWEL[word])
        else:
            joined.append(word)
    return " ".join(reversed(joined))


def _agree(adjective: Adjective, gender: str, many: bool) -> str:
    form = adjective.french[gender == "f"]
    return plural(form) if many else form


def _noun_phrase(phrase: NounPhrase, article: str = "") -> list[str]:
    """Returns the words of `phrase`; an `article` replaces its determiner."""
    gender, many = phrase.noun.french_gender, phrase.plural
    noun = plural(phrase.noun.french) if many else phrase.noun.french
    if article:
        words = [article]
    elif not phrase.determiner:
        words = ["de", _DETERMINERS["the"][gender == "f"]]
    else:
        words = [_DETERMINERS[phrase.determiner][2 if many else gender == "f"]]
    adjective = _agree(phrase.adjective, gender, many) if phrase.adjective else ""
    if phrase.adjective and phrase.adjective.before_noun:
        if before_vowel(noun) and not many:
            adjective = _ADJECTIVE_BEFORE_VOWEL.get(adjective, adjective)
        words += [adjective, noun]
    else:
        words += [noun, adjective]
    if phrase.owner:
        words += ["de", *_noun_phrase(phrase.owner)]
    return words


def _clause(clause: Clause) -> list[str]:
    negative = clause.mood == "negative"
    ne, pas = ("ne", "pas") if negative else ("", "")
    if clause.verb is THERE_IS:
        assert isinstance(clause.subject, NounPhrase)
        what = _noun_phrase(clause.subject, "de" if negative else "")
        return ["il", ne, "y", "a", pas, *what, *_rest(clause)]
    subject = [clause.subject.french] if isinstance(clause.subject, Pronoun) else _noun_phrase(clause.subject)
    verb = clause.verb.french
    if clause.adjective and clause.adjective.copula == "tener":
        verb = HAVE.french
    finite = conjugate(clause.modal.french if clause.modal else verb, person(clause.subject))
    if clause.mood == "where":
        return ["où", finite, *subject]
    return [*subject, ne, finite, pas, verb if clause.modal else "", *_rest(clause)]


def _rest(clause: Clause) -> list[str]:
    words = []
    if clause.adjective:
        subject = clause.subject
        gender = subject.gender if isinstance(subject, Pronoun) else subject.noun.french_gender
        if clause.adjective.copula == "tener":
            words.append(clause.adjective.french[0])
        else:
            words += ["plus" if clause.than else "", _agree(clause.adjective, gender, subject.plural)]
    if clause.than:
        words += ["que", *_noun_phrase(clause.than)]
    if clause.object:
        nothing = clause.mood == "negative" and clause.object.determiner in ("a", "")
        words += [clause.verb.french_link, *_noun_phrase(clause.object, "de" if nothing else "")]
    if clause.recipient:
        words += ["à", *_noun_phrase(clause.recipient)]
    if clause.place:
        words += [clause.place.preposition.french, *_noun_phrase(clause.place.at)]
    if clause.content:
        words += ["que", *_clause(clause.content)]
    if clause.time:
        words.append(clause.time.french)
    return words
