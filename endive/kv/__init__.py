"""The log-structured key-value store that needs nothing but a bucket."""
