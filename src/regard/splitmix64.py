"""The output function of SplitMix64 (Steele, Lea, Flood 2014), for random choices that must be reproducible to the bit.

Sampling takes its random bits from it, training its shuffles. It is implemented here because a library's random numbers
change between versions. The exported page has the same function in JavaScript.
"""

from typing import Any

ALL_BITS = 2**64 - 1
GAMMA = 0x9E3779B97F4A7C15  # added to the generator's state at each step


def mix(z: Any) -> Any:
    """Every bit of the result depends on every bit of z: a whole number, taken modulo 2⁶⁴, or an array of uint64."""
    z = z & ALL_BITS
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & ALL_BITS
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & ALL_BITS
    return z ^ (z >> 31)
