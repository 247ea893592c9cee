"""Data written by earlier releases, which every later version must read, check and commit to."""
