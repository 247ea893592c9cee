"""Who a caller is, and what it may do.

`principals` has the caller, `tokens` finds it by a bearer token, `guard` decides by the grants in the catalog, and
`rules` says what each operation needs. `endive.catalog.model.grants` has the privileges and their meaning.
"""

from endive.server.access.guard import GrantReader, Guard
from endive.server.access.principals import ANYBODY, OWNER, Principal
from endive.server.access.tokens import Tokens, hashed, new_token

__all__ = ["ANYBODY", "OWNER", "GrantReader", "Guard", "Principal", "Tokens", "hashed", "new_token"]
