"""All delegation tokens of the cluster, as a process knows them. Pure; belongs to one event loop.

About 1 KB each: 100,000 tokens, which are the most that the controller makes, take some 100 MB.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from regnum_model.delegation_tokens import DelegationToken
from regnum_model.principals import Principal


class TokenTable:
    """Tokens by id, and how many there are of whom."""

    def __init__(self) -> None:
        """Empty."""
        self._tokens: Final[dict[str, DelegationToken]] = {}
        self._of: Final[Counter[tuple[str, str]]] = Counter()

    def __len__(self) -> int:
        """How many there are."""
        return len(self._tokens)

    def __iter__(self) -> Iterator[DelegationToken]:
        """All, in no order; take a copy before others run."""
        return iter(self._tokens.values())

    def ids(self) -> tuple[str, ...]:
        """Their ids, in no order."""
        return tuple(self._tokens)

    def find(self, id: str) -> DelegationToken | None:
        """The token of that id."""
        return self._tokens.get(id)

    def put(self, token: DelegationToken) -> None:
        """There is that token, in the place of any other of its id."""
        self.drop(token.id)
        self._tokens[token.id] = token
        self._of.update(_concerned(token))

    def drop(self, id: str) -> None:
        """There is no such token."""
        token = self._tokens.pop(id, None)
        if token is None:
            return
        for key in _concerned(token):
            self._of[key] -= 1
            if not self._of[key]:
                del self._of[key]

    def count_of(self, somebody: Principal) -> int:
        """Tokens that they own or asked for."""
        return self._of[_key(somebody)]


def _concerned(token: DelegationToken) -> set[tuple[str, str]]:
    return {_key(token.owner), _key(token.requester)}


def _key(somebody: Principal) -> tuple[str, str]:
    return somebody.type, somebody.name
