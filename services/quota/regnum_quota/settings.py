"""Settings of the quota service."""

from pydantic import Field, field_validator
from regnum_model.principals import NAME_LENGTH_MAX, USER
from regnum_model.quota_terms import EXEMPT_CHARACTERS_MAX, EXEMPT_MAX
from regnum_service.access.name_lists import parse_names
from regnum_service.settings import AddressText
from regnum_service.tls.settings import InternalListenerSettings
from regnum_telemetry.metrics import SERIES_MAX


class QuotaSettings(InternalListenerSettings):
    """What a quota process is told."""

    quota_id: int = Field(ge=0, lt=2**31, description="Id of this quota process; a space of its own.")
    internal_listen: AddressText = Field(description="Where the controller asks for admission, host:port.")
    internal_advertised: AddressText | None = Field(
        default=None, description="Where others reach internal-listen, if not at that address."
    )
    exempt_users: str = Field(
        default="",
        description="Users without a quota, separated by semicolons: root;CN=admin,OU=Ops,O=Example. One"
        " that holds a semicolon or quotes goes into double quotes, a quote in it twice. Without a semicolon, commas"
        " separate, but for those within a distinguished name.",
    )
    metrics_entities_max: int = Field(
        default=50,
        ge=0,
        lt=SERIES_MAX,
        description="Buckets of quotas that metrics show by user and client id; the rest is shown together.",
    )
    lifeline_detection: bool = Field(
        default=True,
        description="Whether a standby may declare the active process dead; without, only its session does.",
    )

    @field_validator("exempt_users")
    @classmethod
    def _few_and_short(cls, text: str) -> str:
        names = _names(text)
        if len(names) > EXEMPT_MAX:
            raise ValueError(f"{len(names)} users are exempt; name at most {EXEMPT_MAX}")
        if any(len(name) > NAME_LENGTH_MAX for name in names):
            raise ValueError(f"a user has at most {NAME_LENGTH_MAX} characters")
        if sum(map(len, names)) > EXEMPT_CHARACTERS_MAX:
            raise ValueError(f"the names of exempt users have more than {EXEMPT_CHARACTERS_MAX} characters together")
        return text

    @property
    def exempt(self) -> frozenset[str]:
        """The exempt users."""
        return _names(self.exempt_users)


def _names(text: str) -> frozenset[str]:
    """Names; the type is left out, since quotas are about users alone."""
    return frozenset(name.removeprefix(f"{USER}:") or name for name in parse_names(text, commas=True))
