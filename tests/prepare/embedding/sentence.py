"""A few hundred sentences of our own making, of 3 to some 40 words."""

from __future__ import annotations

from itertools import product

PEOPLE = (
    "The nurse",
    "My old teacher",
    "A tall engineer",
    "Her lawyer",
    "The young farmer",
    "Ömer",
)
DEEDS = ("sold", "repaired", "was afraid of", "wrote a long letter about", "dreamt of", "painted")
THINGS = ("the bicycle", "a broken clock", "the harbour", "bread", "an unusually heavy wardrobe")
ENDS = (".", " in spring, when the river was high and nobody came to the market any more.")
SENTENCES = tuple(
    f"{person} {deed} {thing}{end}"
    for person, deed, thing, end in product(PEOPLE, DEEDS, THINGS, ENDS)
)
