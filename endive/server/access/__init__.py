"""Who a caller is, and what it may do.

`principals` has the caller, `tokens` and `oidc` find it by a bearer token (`callers` by either), `guard` decides by the
grants in the catalog, `rules` says what each operation needs, and `locations` what a request may name.
`endive.catalog.model.grants` has the privileges and their meaning.
"""

from endive.server.access.callers import Authenticator, Callers
from endive.server.access.guard import GrantReader, Guard
from endive.server.access.principals import ANYBODY, OWNER, Principal
from endive.server.access.tokens import Tokens, hashed, new_token

__all__ = [
    "ANYBODY",
    "OWNER",
    "Authenticator",
    "Callers",
    "GrantReader",
    "Guard",
    "Principal",
    "Tokens",
    "hashed",
    "new_token",
]
