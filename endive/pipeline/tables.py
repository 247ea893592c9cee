"""Former place of `endive.spark.register` and `endive.spark.read_native`; works for this release."""

from endive.spark import EndiveSource, read_native, register

__all__ = ["EndiveSource", "read_native", "register"]
