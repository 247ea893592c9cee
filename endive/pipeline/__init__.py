"""The data pipeline on Spark: sessions, sweeps, consolidation and measures. Importing it starts nothing."""
