r"""The principal of a certificate, from its distinguished name by rules (Kafka: ``ssl.principal.mapping.rules``). Pure.

Rules are separated by commas and tried in their order; the first one whose pattern matches the whole name decides::

    RULE:pattern/replacement/[LU]     the replacement, with $1 to $9 for the groups of the pattern; L: in lower case,
                                      U: in upper case. A slash within is written \/
    DEFAULT                           the whole name

A name is as RFC 2253 writes it, most special part first, without spaces: ``CN=ann,OU=Clients,O=Regnum``. Patterns are
RE2's: matched in a time that grows with the length of the name and nothing else, whatever the certificate holds. So
there are no back references and nothing that looks ahead.

A comma within a value is written ``\,``: a pattern that is to end at a comma excludes the backslash, too.

Example: ``RULE:^CN=([^,\\]+),OU=Clients.*$/$1/L,DEFAULT`` makes ``ann`` of ``CN=Ann,OU=Clients,O=Regnum`` and leaves
the names of others as they are.
"""

from dataclasses import dataclass
from typing import Final, Literal, Self

import re2
from regnum_model.principals import NAME_LENGTH_MAX, Principal

RULES_LENGTH_MAX: Final = 10_000
"""Characters of all rules."""

SUBJECT_LENGTH_MAX: Final = 16_384
"""Characters of a distinguished name that are looked at; a longer one has no principal."""

Case = Literal["", "L", "U"]
"""What becomes of the letters."""


class MappingRulesError(ValueError):
    """What is no list of rules. The message says where and why."""


class NoPrincipalError(ValueError):
    """A distinguished name that no rule has a principal for. The message says so."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Of a replacement: text, or a group."""

    text: str = ""
    group: int = 0


@dataclass(frozen=True, slots=True)
class _Rule:
    """One rule; without a pattern it is DEFAULT."""

    pattern: "re2._Regexp | None"
    parts: tuple[_Part, ...] = ()
    case: Case = ""

    def name(self, subject: str) -> str | None:
        """What it makes of a distinguished name; None: it is not for this one."""
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None
        made = "".join(part.text or (match.group(part.group) or "" if part.group else "") for part in self.parts)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


@dataclass(frozen=True, slots=True)
class MappingRules:
    """All rules of a listener."""

    rules: tuple[_Rule, ...]

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read rules; empty text is DEFAULT. Raises MappingRulesError."""
        if len(text) > RULES_LENGTH_MAX:
            raise MappingRulesError(f"more than {RULES_LENGTH_MAX} characters; write shorter rules")
        rules: list[_Rule] = []
        rest = text.strip()
        while rest:
            rule, rest = _next_rule(rest, len(text) - len(rest))
            rules.append(rule)
        return cls(tuple(rules) or (_Rule(None),))

    def principal(self, subject: str) -> Principal:
        """Whose certificate that is. Raises NoPrincipalError."""
        if len(subject) > SUBJECT_LENGTH_MAX:
            raise NoPrincipalError(f"the certificate's name has more than {SUBJECT_LENGTH_MAX} characters")
        for rule in self.rules:
            name = rule.name(subject)
            if name is None:
                continue
            if not name or len(name) > NAME_LENGTH_MAX:
                raise NoPrincipalError(
                    f"a principal mapping rule makes a name of {len(name)} characters of {subject[:200]!r}; it has to"
                    f" have 1 to {NAME_LENGTH_MAX}"
                )
            return Principal(name)
        raise NoPrincipalError(
            f"no principal mapping rule is for the certificate of {subject[:200]!r}; use another certificate, or add"
            " a rule (DEFAULT takes them all)"
        )


def _next_rule(text: str, at: int) -> tuple[_Rule, str]:
    """The first rule of a list, and what stands behind its comma; ``at``: where it begins, for the error."""
    if text.startswith("DEFAULT"):
        rule, rest = _Rule(None), text.removeprefix("DEFAULT")
    elif text.startswith("RULE:"):
        pattern, rest = _until_slash(text.removeprefix("RULE:"), at)
        replacement, rest = _until_slash(rest, at)
        case: Case = "L" if rest.startswith("L") else "U" if rest.startswith("U") else ""
        rule, rest = _rule(pattern, replacement, case, at), rest[len(case) :]
    else:
        raise MappingRulesError(
            f"at character {at + 1}: {text[:20]!r} begins no rule; write RULE:pattern/replacement/[LU] or DEFAULT"
        )
    rest = rest.lstrip()
    if not rest:
        return rule, ""
    if not rest.startswith(",") or not rest[1:].strip():
        raise MappingRulesError(f"at character {at + 1}: {rest[:20]!r} follows a rule; put a comma and a rule there")
    return rule, rest[1:].lstrip()


def _until_slash(text: str, at: int) -> tuple[str, str]:
    r"""What stands before the next slash, ``\/`` being one that does not count, and what stands behind it."""
    found: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "/":
            return "".join(found), text[position + 1 :]
        if character == "\\" and position + 1 < len(text):
            position += 1
            character = "/" if text[position] == "/" else f"\\{text[position]}"
        found.append(character)
        position += 1
    raise MappingRulesError(f"at character {at + 1}: a slash is missing; write RULE:pattern/replacement/[LU]")


def _rule(pattern: str, replacement: str, case: Case, at: int) -> _Rule:
    options = re2.Options()
    # It would write to stderr itself.
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0] if error.args else ""
        why = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
        raise MappingRulesError(f"at character {at + 1}: {pattern!r} is no pattern of RE2 ({why})") from error
    return _Rule(compiled, _parts(replacement, compiled.groups, at), case)


def _parts(replacement: str, groups: int, at: int) -> tuple[_Part, ...]:
    parts: list[_Part] = []
    text, position = "", 0
    while position < len(replacement):
        character, following = replacement[position], replacement[position + 1 : position + 2]
        if character == "$" and following.isdecimal() and following.isascii():
            group = int(following)
            if group > groups or not group:
                raise MappingRulesError(
                    f"at character {at + 1}: ${group} is no group of the pattern, which has {groups}; give $1 to $9"
                )
            parts += [_Part(text), _Part(group=group)] if text else [_Part(group=group)]
            text, position = "", position + 2
            continue
        if character == "\\" and following:
            character, position = following, position + 1
        text += character
        position += 1
    return (*parts, _Part(text)) if text else tuple(parts)
