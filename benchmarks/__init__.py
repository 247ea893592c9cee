"""Measurements: each script writes `results/<name>.json`, and numbers in the documentation cite that file."""
