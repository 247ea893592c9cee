"""Compaction, garbage collection and the checker; `background` runs the first two inside a writer."""
