"""A Bloom filter: says for certain that a key is not in a file, or that it may be.

Ten bits a key and seven probes: one wrong "may be" in about 120. Below a thousand keys a file is read as quickly as its
filter, and gets none.
"""

import numpy as np
from xxhash import xxh3_64_intdigest

BITS_PER_KEY = 10
PROBES = 7
KEYS_MIN = 1000
_LOW = (1 << 32) - 1


def build_filter(keys: list[bytes]) -> bytes:
    """Return a filter for these keys; empty if they are few."""
    if len(keys) < KEYS_MIN:
        return b""
    bits = np.zeros(-(-len(keys) * BITS_PER_KEY // 8) * 8, dtype=np.uint8)
    hashes = np.fromiter(map(xxh3_64_intdigest, keys), dtype=np.uint64, count=len(keys))
    low, high = hashes & np.uint64(_LOW), (hashes >> np.uint64(32)) | np.uint64(1)
    for probe in range(PROBES):
        bits[(low + np.uint64(probe) * high) % np.uint64(bits.size)] = 1
    packed: bytes = np.packbits(bits, bitorder="little").tobytes()
    return packed


def may_contain(packed: bytes, key: bytes) -> bool:
    """Whether the key may be among those the filter was built for. An empty filter knows nothing."""
    if not packed:
        return True
    hashed = xxh3_64_intdigest(key)
    low, high, size = hashed & _LOW, (hashed >> 32) | 1, len(packed) * 8
    for probe in range(PROBES):
        bit = (low + probe * high) % size
        if not packed[bit >> 3] >> (bit & 7) & 1:
            return False
    return True
