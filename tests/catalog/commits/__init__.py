"""Commits: races, repeats, several tables at once, and what is left behind when something fails."""
