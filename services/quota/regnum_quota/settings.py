"""Settings of the quota service."""

from pydantic import Field
from regnum_service.settings import AddressText, ServiceSettings


class QuotaSettings(ServiceSettings):
    """What a quota process is told."""

    quota_id: int = Field(ge=0, lt=2**31, description="Id of this quota process; a space of its own.")
    internal_listen: AddressText = Field(description="Where the controller asks for admission, host:port.")
    internal_advertised: AddressText | None = Field(
        default=None, description="Where others reach internal-listen, if not at that address."
    )
    exempt_users: str = Field(default="", description="Users to whom no quota applies, separated by commas.")
    lifeline_detection: bool = Field(
        default=True,
        description="Whether a standby may declare the active process dead; without, only its session does.",
    )

    @property
    def exempt(self) -> frozenset[str]:
        """The exempt users."""
        return frozenset(name.strip() for name in self.exempt_users.split(",") if name.strip())
