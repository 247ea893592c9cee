"""The plug-in for PyIceberg: `py-catalog-impl = endive.catalog.pyiceberg.EndiveCatalog`."""

from endive.catalog.pyiceberg.catalog import EndiveCatalog

__all__ = ["EndiveCatalog"]
