"""Seeded runs in virtual time."""
