"""Settings of the metadata service."""

from pydantic import Field
from pydantic_settings import CLI_SUPPRESS
from regnum_service.access.tokens.settings import TokenSettings
from regnum_service.settings import AddressText
from regnum_service.tls.settings import ListenerSettings


class MetadataSettings(ListenerSettings, TokenSettings):
    """What a metadata process is told."""

    metadata_id: int = Field(ge=0, lt=2**31, description="Id of this metadata process; a space of its own.")
    client_listen: AddressText = Field(description="Where clients ask for metadata, host:port.")
    internal_listen: AddressText = Field(description="Where the controller publishes changes, host:port.")
    client_advertised: AddressText | None = Field(
        default=None, description="Where others reach client-listen, if not at that address."
    )
    shared_payloads: bool = Field(default=True, description=CLI_SUPPRESS)
    """For measurements: false makes a payload for each broker, which is what seed 003 does away with."""
    internal_advertised: AddressText | None = Field(
        default=None, description="Where others reach internal-listen, if not at that address."
    )
