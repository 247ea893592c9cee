"""Settings for all tests."""

from hypothesis import settings

# No test depends on how fast the machine is; a failure prints what replays it.
settings.register_profile("endive", deadline=None, print_blob=True)
settings.load_profile("endive")
