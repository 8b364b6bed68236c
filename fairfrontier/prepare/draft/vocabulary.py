"""Words by which columns of an undescribed table are recognised, in several spellings.

They are compared with the words of a column's name, in lower case and without accents.
"""

from __future__ import annotations

import re
import unicodedata


def _words(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


# What the law of many countries protects, as columns are called in English, German, French,
# Spanish and Portuguese; the attributes that most laws name come first.
PROTECTED: dict[str, frozenset[str]] = {
    "sex": _words(
        "sex gender geschlecht sexe genre sexo genero female male woman is_female is_male"
    ),
    "race": _words(
        "race racial rasse raza raca skin_color skin_colour white black hispanic latino nonwhite",
        "african_american caucasian minority",
    ),
    "ethnicity": _words("ethnicity ethnic ethnie etnia ethnizitat"),
    "age": _words("age ages alter edad idade agegroup altersgruppe"),
    "disability": _words("disability disabled handicap behinderung discapacidad deficiencia"),
    "religion": _words("religion religious faith konfession caste"),
    "nationality": _words(
        "nationality national_origin citizenship citizen native_country country_of_birth",
        "birth_country country_of_origin birthplace foreign foreigner foreign_worker immigrant",
        "immigration migrant nationalitat staatsangehorigkeit nationalite nacionalidad",
    ),
    "language": _words("native_language mother_tongue muttersprache first_language"),
    "orientation": _words("sexual_orientation lgbt lgbtq"),
    "marital status": _words(
        "marital married marriage civil_status familienstand spouse estado_civil etat_civil",
        "personal_status",
    ),
    "pregnancy": _words("pregnant pregnancy maternity"),
    "veteran": _words("veteran"),
}
# Levels by which a column is recognised whatever its name.
MEN = _words("male m man men mannlich homme h hombre masculino")
WOMEN = _words("female f woman women weiblich w femme mujer femenino feminino")
FURTHER_SEXES = _words("x d other unknown diverse divers nonbinary non-binary")
RACES = frozenset(
    {
        *_words("white black asian hispanic latino latinx caucasian african-american non-white"),
        *_words("asian-pac-islander amer-indian-eskimo nonwhite"),
        *("native american", "american indian", "african american", "black or african american"),
        "pacific islander",
    }
)
IDENTIFIERS = _words("id ids uuid guid key index idx rowid rownum number nummer no nr ssn")

# Names of columns that are decided or predicted.
LABELS = _words("label labels target y class outcome response truth")
OUTCOMES = _words(
    "decision approved approval accepted admitted admission granted hired hire promoted selected",
    "shortlisted invited offer repaid paid default defaulted creditability credit_risk loan_status",
    "recid recidivism recidivist reoffend reoffended rearrest churn churned exited fraud",
    "passed graduated dropout readmitted survived diagnosis employed qualified eligible bad good",
    "subscribed attrition",
)
# Levels that mean yes, whatever of, and those that mean something good; levels that mean no.
PLAIN = _words("1 yes y true t ja oui si sim")
YES = PLAIN | _words(
    "positive pos approved accepted accept granted admitted hired hire selected passed pass good",
    "repaid paid fully_paid success qualified eligible >50k >50k. high won survived invited",
    "promoted",
)
NO = _words(
    "no n false f 0 -1 negative neg rejected reject refused denied deny declined not_hired failed",
    "fail bad late default defaulted charged_off unpaid failure <=50k <=50k. low lost unqualified",
    "ineligible nein non nao",
)
# What nobody wants: of a label named so, yes is the unfavourable class.
HARMS = _words(
    "default defaulted recid recidivism recidivist reoffend reoffended rearrest arrest churn",
    "churned exited fraud fraudulent dropout readmitted bad delinquent delinquency bankrupt",
    "bankruptcy late rejected reject denied declined attrition terminated risk",
)


def fold(text: str) -> str:
    """Return text in lower case without accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return "".join(char for char in plain if not unicodedata.combining(char)).strip()


def name_words(name: str) -> list[str]:
    """Return the words of a column's name, and every run of two or three of them joined by _."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    words = re.findall(r"[^\W_]+", fold(spaced))
    runs = [
        "_".join(words[start : start + size])
        for size in (2, 3)
        for start in range(len(words) - size + 1)
    ]
    return words + runs


def find_attribute(name: str) -> str | None:
    """Return the protected attribute that a column's name says it holds."""
    words = set(name_words(name))
    return next((kind for kind, names in PROTECTED.items() if words & names), None)


def recognise_levels(levels: list[str]) -> str | None:
    """Return the protected attribute whose levels these are."""
    found = {fold(level) for level in levels}
    if found & MEN and found & WOMEN and found <= MEN | WOMEN | FURTHER_SEXES:
        return "sex"
    return "race" if len(found & RACES) > 1 else None
