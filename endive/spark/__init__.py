"""Spark: a Java, a JVM, a session, and the data source `endive`. Importing it starts nothing."""
