"""Sorted string tables: their layout, and finding rows in them. The WAL and the levels share the format."""
