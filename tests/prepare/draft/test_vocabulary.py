"""Names and levels by which protected columns are recognised, and those that only look so."""

from __future__ import annotations

import pytest

from fairfrontier.prepare.draft.column import find_attribute, recognise_levels

NAMES = {
    "sex": "Sex gender_code customerGender GESCHLECHT sexe genero is_female Genre",
    "race": "race RACE_ETHNICITY skin-color Hautfarbe raza is_white black",
    "ethnicity": "ethnic_group Ethnie etnia groupe_ethnique",
    "age": "age Age_Group altersgruppe edad âge Geburtsjahr birthYear SeniorCitizen "
    "ano_de_nascimento",
    "disability": "disability_status disabled Schwerbehinderung handicapé discapacidad",
    "religion": "religion Religionszugehörigkeit konfession religión religião",
    "nationality": "nationality birth_country countryOfBirth migrant Herkunftsland origin "
    "Migrationshintergrund Staatsangehörigkeit nationalité pays_de_naissance país_de_nacimiento "
    "Nationalitaet nacionalidade país_de_nascimento",
    "marital status": "marital.status married Familienstand situation_familiale estado-civil "
    "has_spouse",
    "pregnancy": "pregnant grávida Pregnancies Schwangerschaft enceinte embarazo",
    "veteran": "veteran_status Veterans veterano",
}
OTHERS = (
    "engender percentage average village package language_score storage manager agency sexton "
    "racetrack originator loan_origination embrace trace white_collar black_list foreign_exchange "
    "music_genre citizen_score alter_ego origin_airport unmarred nation marinate male_name_count "
    "spouse_income"
)


@pytest.mark.parametrize(
    ("name", "kind"), [(name, kind) for kind, names in NAMES.items() for name in names.split()]
)
def test_names_are_recognised_in_five_languages(name, kind):
    assert find_attribute(name) == kind


@pytest.mark.parametrize("name", OTHERS.split())
def test_words_within_words_and_words_of_other_things_are_none(name):
    assert find_attribute(name) is None


@pytest.mark.parametrize(
    ("levels", "kind"),
    [
        ("M F", "sex"),
        ("Männlich Weiblich Divers", "sex"),
        ("homme femme", "sex"),
        ("White Black Other", "race"),
        ("married single widowed", "marital status"),
        ("ledig verheiratet", "marital status"),
        ("Catholic Protestant none", "religion"),
        ("F S", None),
        ("m s l", None),
        ("white red", None),
        ("single multiple", None),
    ],
)
def test_levels_speak_where_the_name_does_not(levels, kind):
    assert recognise_levels(levels.split()) == kind
