"""Retention, expiry, orphan files, clean-up of expired rows, and the checker."""
