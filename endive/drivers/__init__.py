"""Drivers answer the requests of a protocol. `blocking` is for production; `endive.testing` has those for tests."""
