"""Settings of the metadata service."""

from pydantic import Field
from regnum_service.settings import AddressText, ServiceSettings


class MetadataSettings(ServiceSettings):
    """What a metadata process is told."""

    metadata_id: int = Field(ge=0, lt=2**31, description="Id of this metadata process; a space of its own.")
    client_listen: AddressText = Field(description="Where clients ask for metadata, host:port.")
    internal_listen: AddressText = Field(description="Where the controller publishes changes, host:port.")
    client_advertised: AddressText | None = Field(
        default=None, description="Where others reach client-listen, if not at that address."
    )
    internal_advertised: AddressText | None = Field(
        default=None, description="Where others reach internal-listen, if not at that address."
    )
