"""Names, keys and records: the rows that a catalog keeps, as values."""
