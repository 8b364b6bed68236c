"""Seeds derived from names, and uniform numbers that belong to rows."""

from __future__ import annotations

import hashlib

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def derive_seed(*names: str | int) -> np.random.SeedSequence:
    """Derive a seed from a path of names of its purpose, e.g. ``"adult", "split", 0``.

    ``1`` and ``"1"`` are different names. The same names give the same seed on every machine;
    streams of different names are independent.

    Raises
    ------
    TypeError
        When a name is neither a string nor an integer.
    """
    digest = hashlib.sha256()
    for name in names:
        if isinstance(name, bool) or not isinstance(name, (str, int, np.integer)):
            raise TypeError(f"a seed is derived from strings and integers, not from {name!r}")
        kind = "s" if isinstance(name, str) else "i"
        text = str(name).encode()
        digest.update(f"{kind}{len(text)}:".encode() + text)
    return np.random.SeedSequence(np.frombuffer(digest.digest(), dtype="<u4").tolist())


def derive_generator(*names: str | int) -> np.random.Generator:
    """Return a generator seeded by names; see `derive_seed`."""
    return np.random.default_rng(derive_seed(*names))


def derive_integer(*names: str | int) -> int:
    """Return a seed in 0, …, 2³¹ − 1 for libraries that take an integer; see `derive_seed`."""
    return int(derive_seed(*names).generate_state(1, np.uint32)[0] >> np.uint32(1))


def uniforms(seed: int, ids: np.ndarray) -> np.ndarray:
    """Draw one uniform number in [0, 1) per row from a counter-based generator of (seed, row id).

    u_i = ⌊mix(mix(id_i · φ + a) + b) / 2¹¹⌋ / 2⁵³, where a and b are made from the seed and mix is
    the finaliser of SplitMix64, a bijection of 64-bit words. The seed is any integer, taken modulo
    2⁶⁴; ids are integers of any shape, not necessarily unique. Numbers are the same for the same
    (seed, id) in any batch or order. Not for cryptography.

    Raises
    ------
    TypeError
        When the ids are not integers.

    References
    ----------
    Steele, Lea, Flood. Fast splittable pseudorandom number generators. OOPSLA 2014, figure 14.
    Salmon, Moraes, Dror, Shaw. Parallel random numbers: as easy as 1, 2, 3. SC 2011, section 2.
    """
    ids = np.asarray(ids)
    if not np.issubdtype(ids.dtype, np.integer):
        raise TypeError(f"row ids are integers, not {ids.dtype}")
    start = np.asarray([int(seed) & _MASK], dtype=np.uint64)
    a = _mix(start + _GOLDEN)
    b = _mix(a + _GOLDEN)
    words = ids.astype(np.uint64) if ids.dtype.kind == "u" else ids.astype(np.int64).view(np.uint64)
    mixed = _mix(_mix(words * _GOLDEN + a) + b)
    drawn: np.ndarray = (mixed >> np.uint64(11)) * 2.0**-53
    return drawn


def _mix(word: np.ndarray) -> np.ndarray:
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    word ^= word >> np.uint64(31)
    return word
