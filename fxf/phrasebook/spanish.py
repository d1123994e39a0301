"""Spanish for the phrasebook: agreement, ser and estar, the personal "a", contraction."""

import re
from functools import cache

from fxf.phrasebook.adjectives import Adjective
from fxf.phrasebook.grammar import Clause, NounPhrase, person
from fxf.phrasebook.verbs import BE, HAVE, THERE_IS, Pronoun

_PLURALS = {"joven": "jóvenes", "paraguas": "paraguas"}
# The verbs that are not conjugated like "hablar", "comer" or "abrir".
_PRESENTS = {
    "cerrar": "cierro cierras cierra cerramos cierran",
    "conocer": "conozco conoces conoce conocemos conocen",
    "dar": "doy das da damos dan",
    "decir": "digo dices dice decimos dicen",
    "dormir": "duermo duermes duerme dormimos duermen",
    "elegir": "elijo eliges elige elegimos eligen",
    "encontrar": "encuentro encuentras encuentra encontramos encuentran",
    "enviar": "envío envías envía enviamos envían",
    "estar": "estoy estás está estamos están",
    "ir": "voy vas va vamos van",
    "mostrar": "muestro muestras muestra mostramos muestran",
    "pensar": "pienso piensas piensa pensamos piensan",
    "querer": "quiero quieres quiere queremos quieren",
    "ser": "soy eres es somos son",
    "sonreír": "sonrío sonríes sonríe sonreímos sonríen",
    "tener": "tengo tienes tiene tenemos tienen",
    "traer": "traigo traes trae traemos traen",
    "venir": "vengo vienes viene venimos vienen",
    "ver": "veo ves ve vemos ven",
    "volar": "vuelo vuelas vuela volamos vuelan",
}
_ENDINGS = {"ar": "o as a amos an", "er": "o es e emos en", "ir": "o es e imos en"}
# Masculine and feminine singular, masculine and feminine plural.
_DETERMINERS = {
    "the": ("el", "la", "los", "las"),
    "a": ("un", "una", "", ""),
    "no": ("ningún", "ninguna", "", ""),
    "this": ("este", "esta", "estos", "estas"),
    "my": ("mi", "mi", "mis", "mis"),
    "your": ("tu", "tu", "tus", "tus"),
    "his": ("su", "su", "sus", "sus"),
    "her": ("su", "su", "sus", "sus"),
    "our": ("nuestro", "nuestra", "nuestros", "nuestras"),
    "two": ("", "", "dos", "dos"),
    "three": ("", "", "tres", "tres"),
    "four": ("", "", "cuatro", "cuatro"),
    "five": ("", "", "cinco", "cinco"),
    "ten": ("", "", "diez", "diez"),
    "": ("", "", "", ""),
}
# Feminine nouns with "el" and "un" in the singular, because they begin with a stressed a.
_STRESSED_A = frozenset({"agua", "águila", "arpa"})
_CONTRACTED = {("a", "el"): "al", ("de", "el"): "del"}


@cache
def plural(word: str) -> str:
    """Returns the plural of a Spanish noun or adjective."""
    if word in _PLURALS:
        return _PLURALS[word]
    if word[-1] in "aeoáéó":
        return f"{word}s"
    if word.endswith("z"):
        return f"{word[:-1]}ces"
    # With one more syllable the stress needs no accent.
    word = re.sub("([óí])n$", lambda match: {"ó": "o", "í": "i"}[match[1]] + "n", word)
    return f"{word}es"


@cache
def conjugate(verb: str, person: int) -> str:
    """Returns the present of a Spanish verb; `person` counts yo, tú, él, nosotros, ellos from 0."""
    if verb in _PRESENTS:
        return _PRESENTS[verb].split()[person]
    return verb[:-2] + _ENDINGS[verb[-2:]].split()[person]


def sentence(clause: Clause) -> str:
    """Returns `clause` as a Spanish sentence."""
    text = _join(" ".join(_clause(clause)).split())
    text = f"{text[0].upper()}{text[1:]}"
    return f"¿{text}?" if clause.mood in ("question", "where") else f"{text}."


def _join(words: list[str]) -> str:
    joined: list[str] = []
    for word in words:
        if joined and (joined[-1], word) in _CONTRACTED:
            joined[-1] = _CONTRACTED[joined[-1], word]
        else:
            joined.append(word)
    return " ".join(joined)


def _agree(adjective: Adjective, gender: str, many: bool) -> str:
    form = adjective.spanish[gender == "f"]
    return plural(form) if many else form


def _noun_phrase(phrase: NounPhrase, determiner: str | None = None) -> list[str]:
    noun, gender, many = phrase.noun.spanish, phrase.noun.spanish_gender, phrase.plural
    name = phrase.determiner if determiner is None else determiner
    masculine = gender == "m" or (name in ("the", "a", "no") and noun in _STRESSED_A and not many)
    words = [_DETERMINERS[name][2 * many + (not masculine)], plural(noun) if many else noun]
    if phrase.adjective:
        words.append(_agree(phrase.adjective, gender, many))
    if phrase.owner:
        words += ["de", *_noun_phrase(phrase.owner)]
    return words


def _clause(clause: Clause) -> list[str]:
    negative = clause.mood == "negative"
    no = "no" if negative else ""
    if clause.verb is THERE_IS:
        assert isinstance(clause.subject, NounPhrase)
        return [no, "hay", *_noun_phrase(clause.subject, "no" if negative else None), *_rest(clause)]
    subject = [clause.subject.spanish] if isinstance(clause.subject, Pronoun) else _noun_phrase(clause.subject)
    verb = clause.verb.spanish
    if clause.verb is BE and clause.adjective:
        verb = clause.adjective.copula
    finite = conjugate(clause.modal.spanish if clause.modal else verb, person(clause.subject))
    if clause.mood == "where":
        return ["dónde", finite, *subject]
    infinitive = [clause.modal.spanish_link, verb] if clause.modal else []
    # Spanish names a recipient twice: "le da el libro al niño".
    to_whom = ("les" if clause.recipient.plural else "le") if clause.recipient else ""
    return [*subject, no, to_whom, finite, *infinitive, *_rest(clause)]


def _rest(clause: Clause) -> list[str]:
    words = []
    if clause.adjective:
        subject = clause.subject
        gender = subject.gender if isinstance(subject, Pronoun) else subject.noun.spanish_gender
        if clause.adjective.copula == "tener":
            words.append(clause.adjective.spanish[0])
        else:
            words += ["más" if clause.than else "", _agree(clause.adjective, gender, subject.plural)]
    if clause.than:
        words += ["que", *_noun_phrase(clause.than)]
    if clause.object:
        # "no tener" takes no article: "no tiene coche".
        bare = clause.verb is HAVE and clause.mood == "negative"
        personal = "a" if "person" in clause.object.noun.kinds and clause.verb is not HAVE else ""
        words += [clause.verb.spanish_link or personal, *_noun_phrase(clause.object, "" if bare else None)]
    if clause.recipient:
        words += ["a", *_noun_phrase(clause.recipient)]
    if clause.place:
        words += [clause.place.preposition.spanish, *_noun_phrase(clause.place.at)]
    if clause.content:
        words += ["que", *_clause(clause.content)]
    if clause.time:
        words.append(clause.time.spanish)
    return words
