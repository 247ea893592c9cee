"""Fingerprints: hashable values that are equal if two running protocols are in the same state.

The future of a generator depends on its position and on the values of its variables, and on those of the generators
that it delegates to. `fingerprint` includes all of them, and raises for values of unknown types. It cannot see the
values on a frame's evaluation stack. Protocol code therefore keeps to a form without such values
(`endive.protocol.requests`), which a test checks.
"""

from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType
from typing import Any

_PLAIN = (int, str, bytes, bool, float, type(None), range, type, Enum, BuiltinFunctionType)


def fingerprint(value: Any) -> Hashable:  # noqa: ANN401, PLR0911 - one line for each kind of value
    """Return a hashable value that is equal for values that behave equally. `TypeError` for unknown types."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple | list):
        return (type(value).__name__, *map(fingerprint, value))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(map(fingerprint, value)))
    if isinstance(value, Mapping):
        return ("mapping", *((fingerprint(key), fingerprint(held)) for key, held in value.items()))
    if isinstance(value, GeneratorType):
        return _of_generator(value)
    if isinstance(value, FunctionType):
        cells = value.__closure__ or ()
        return (value.__code__, fingerprint(value.__defaults__), *(fingerprint(cell.cell_contents) for cell in cells))
    if isinstance(value, MethodType):
        return (value.__func__.__qualname__, fingerprint(value.__self__))
    if isinstance(value, partial):
        return ("partial", fingerprint(value.func), fingerprint(value.args), fingerprint(value.keywords))
    if isinstance(value, BaseException):
        return (type(value).__name__, fingerprint(value.args))
    if is_dataclass(value):
        return (type(value).__name__, *(fingerprint(getattr(value, field.name)) for field in fields(value)))
    raise TypeError(f"no fingerprint for values of type {type(value).__name__}: {value!r}")


def _of_generator(generator: "GeneratorType[Any, Any, Any]") -> Hashable:
    frame = generator.gi_frame
    if frame is None:
        return "ended"
    inner = generator.gi_yieldfrom
    held = tuple((name, fingerprint(value)) for name, value in sorted(frame.f_locals.items()))
    return (frame.f_code, frame.f_lasti, held, None if inner is None else fingerprint(inner))
