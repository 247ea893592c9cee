"""Transaction functions on namespaces, tables and refs. No I/O, no clock."""
