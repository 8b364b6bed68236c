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
        "sex gender geschlecht sexe genre sexo genero female male woman weiblich mannlich",
        "maennlich femme mujer mulher",
    ),
    "race": _words(
        "race racial rasse raza raca skin_color skin_colour hautfarbe white black hispanic latino",
        "nonwhite african_american caucasian minority minderheit cor_da_pele",
    ),
    "ethnicity": _words(
        "ethnicity ethnic ethnie ethnizitat ethnizitaet ethnisch ethnique etnia etnico etnica",
        "indigenous indigena",
    ),
    "age": _words(
        "age ages alter edad idade agegroup altersgruppe senior_citizen year_of_birth birth_year",
        "geburtsjahr annee_de_naissance annee_naissance ano_de_nacimiento ano_nacimiento",
        "ano_de_nascimento ano_nascimento dob date_of_birth birth_date birthdate birthday",
        "geburtsdatum geburtstag date_de_naissance date_naissance fecha_de_nacimiento",
        "fecha_nacimiento data_de_nascimento data_nascimento",
    ),
    "disability": _words(
        "disability disabilities disabled handicap handicapped handicape invalidite behinderung",
        "behindert schwerbehinderung schwerbehindert discapacidad discapacitado deficiencia",
    ),
    "religion": _words(
        "religion religions religious faith religionszugehorigkeit religionszugehoerigkeit",
        "konfession glaube religieux confession religioso confesion religiao caste",
    ),
    "nationality": _words(
        "nationality national_origin citizenship citizen native_country country_of_birth origin",
        "birth_country country_of_origin birthplace place_of_birth foreign foreigner foreign_born",
        "foreign_worker immigrant immigration migrant refugee nationalitat nationalitaet",
        "staatsangehorigkeit staatsangehoerigkeit geburtsland geburtsort herkunft herkunftsland",
        "auslander auslaender migrationshintergrund nationalite pays_de_naissance pays_naissance",
        "lieu_de_naissance origine etranger immigre nacionalidad pais_de_nacimiento",
        "pais_nacimiento origen extranjero inmigrante migrante nacionalidade pais_de_nascimento",
        "pais_nascimento origem estrangeiro imigrante",
    ),
    "language": _words(
        "native_language mother_tongue first_language muttersprache langue_maternelle",
        "lengua_materna lingua_materna",
    ),
    "orientation": _words("sexual_orientation lgbt lgbtq"),
    "marital status": _words(
        "marital married marriage civil_status familienstand zivilstand verheiratet spouse",
        "estado_civil casado etat_civil situation_familiale situation_matrimoniale",
        "personal_status",
    ),
    "pregnancy": _words(
        "pregnant pregnancy pregnancies maternity schwanger schwangerschaft mutterschutz enceinte",
        "grossesse maternite embarazo embarazada maternidad gravida gravidez maternidade",
    ),
    "veteran": _words("veteran veterans kriegsveteran ancien_combattant veterano"),
}
# Words that mean much else beside others: they count where they are the whole name.
ALONE = _words(
    "white black genre alter minority foreign citizen origin origine origen origem herkunft glaube",
    "faith confession male female spouse",
)
BESIDE = _words("is has flag indicator code group status")
# Levels by which a column is recognised whatever its name.
MEN = _words("male m man men mannlich maennlich mann homme h masculin hombre varon masculino")
WOMEN = _words("female f woman women weiblich w frau femme feminin mujer femenino feminino")
FURTHER_SEXES = _words("x d other unknown diverse divers nonbinary non-binary")
RACES = frozenset(
    {
        *_words("white black asian hispanic latino latinx caucasian african-american non-white"),
        *_words("asian-pac-islander amer-indian-eskimo nonwhite"),
        *("native american", "american indian", "african american", "black or african american"),
        "pacific islander",
    }
)
MARITAL = _words(
    "married unmarried single divorced widowed separated never-married never_married ledig",
    "verheiratet geschieden verwitwet celibataire marie mariee divorce divorcee veuf veuve",
    "soltero soltera casado casada divorciado divorciada viudo viuda",
)
RELIGIONS = _words(
    "christian christianity catholic protestant orthodox muslim islam jewish judaism hindu",
    "hinduism buddhist buddhism sikh katholisch evangelisch muslimisch judisch catholique",
    "protestant musulman juif catolico protestante judio",
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
# Of those the ones that as often say something of a person or the past: a name is not enough.
VAGUE = _words(
    "paid offer invited selected default employed qualified eligible bad good passed class",
    "y response subscribed exited",
)
# Numbers that are an outcome as often as not: a decision is made of them by a cut.
RESULTS = _words(
    "grade grades gpa mark marks score scores result results final rating performance note noten",
    "notes nota calificacion",
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
    single = {word for word in words if "_" not in word} - BESIDE
    words -= ALONE if len(single) > 1 else frozenset()
    return next((kind for kind, names in PROTECTED.items() if words & names), None)


def recognise_levels(levels: list[str]) -> str | None:
    """Return the protected attribute whose levels these are."""
    found = {fold(level) for level in levels}
    if found & MEN and found & WOMEN and found <= MEN | WOMEN | FURTHER_SEXES:
        return "sex"
    kinds = {"race": RACES, "religion": RELIGIONS, "marital status": MARITAL}
    return next((kind for kind, levels in kinds.items() if len(found & levels) > 1), None)
