"""Counts the primes below the number that each file holds: a stand-in for any work that takes a while."""

from __future__ import annotations

from pathlib import Path


def run(mini_batch):
    return [f"{Path(path).stem},{count_primes(int(Path(path).read_text()))}" for path in mini_batch]


def count_primes(limit):
    sieve = bytearray([1]) * limit
    sieve[:2] = b"\0\0"
    for number in range(2, int(limit**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, limit, number)))
    return sum(sieve)
