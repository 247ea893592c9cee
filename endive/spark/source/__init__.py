"""Tables of a catalog on Spark: the data source `endive`, and `read_native` for scans at Spark's own speed."""

from typing import TYPE_CHECKING, Any

from endive.spark.source.data_source import EndiveSource, register

if TYPE_CHECKING:
    from endive.spark.source.native import read_native

__all__ = ["EndiveSource", "read_native", "register"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module's attribute
    """Load PyIceberg only when it is used: every session imports this package."""
    if name == "read_native":
        from endive.spark.source.native import read_native  # noqa: PLC0415

        return read_native
    raise AttributeError(name)
