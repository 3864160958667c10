"""Which process of the cluster a certificate stands for, by rules (``process-role-mapping-rules``). Pure.

The rules are those of principals (``principal_mapping``): the first whose pattern matches the whole distinguished name
decides, and what it makes of it has to be the name of a role. Any other name, and a certificate that no rule is for, is
no process. Without rules nothing is said, and processes are not told apart.

Example: ``RULE:^CN=regnum-(broker|election|metadata|quota)$/$1/`` for the names that the manifests have cert-manager
make.
"""

from typing import Final

from regnum_service.access.identity import ProcessRole
from regnum_service.access.principal_mapping import MappingRules, NoPrincipalError

ROLES: Final = {
    role.value: role for role in (ProcessRole.BROKER, ProcessRole.ELECTION, ProcessRole.METADATA, ProcessRole.QUOTA)
}
"""What a rule may make of a name."""


class RoleRules:
    """The rules of a process."""

    def __init__(self, rules: MappingRules) -> None:
        """Only assigns."""
        self._rules: Final = rules

    def __call__(self, subject: str) -> ProcessRole:
        """Which process that certificate stands for; NONE: none. ``subject``: its distinguished name."""
        try:
            name = self._rules.principal(subject).name
        except NoPrincipalError:
            return ProcessRole.NONE
        return ROLES.get(name, ProcessRole.NONE)


def unmapped(_subject: str) -> ProcessRole:
    """Where there are no rules."""
    return ProcessRole.UNMAPPED
