"""Zstandard, with a limit on what comes out: a damaged length must not ask for all memory."""

import threading

import zstandard

from endive.errors import CorruptObjectError

LEVEL = 1
_local = threading.local()  # compressors are not for several threads


def compress(data: bytes) -> bytes:
    """Return `data` as one frame that says its own length."""
    if not hasattr(_local, "compressor"):
        _local.compressor = zstandard.ZstdCompressor(level=LEVEL)
    frame: bytes = _local.compressor.compress(data)
    return frame


def decompress(path: str, frame: bytes, size_max: int) -> bytes:
    """Return what was compressed; `CorruptObjectError` if it is damaged or longer than `size_max`."""
    try:
        size = zstandard.frame_content_size(frame)
        if not 0 <= size <= size_max:
            raise CorruptObjectError(path, f"compressed data claims a size of {size} bytes")
        if not hasattr(_local, "decompressor"):
            _local.decompressor = zstandard.ZstdDecompressor()
        data: bytes = _local.decompressor.decompress(frame, max_output_size=size_max)
    except zstandard.ZstdError as error:
        raise CorruptObjectError(path, f"compressed data is damaged: {error}") from error
    return data
