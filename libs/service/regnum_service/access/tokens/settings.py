"""What a service is told about delegation tokens."""

from pathlib import Path

from pydantic import Field

from regnum_service.access.tokens.process import ProcessTokens
from regnum_service.access.tokens.secrets import read_secrets
from regnum_service.clock import Clock
from regnum_service.settings import ServiceSettings


class TokenSettings(ServiceSettings):
    """Of a service whose clients may show tokens. Secrets are in files: flags and variables are seen by others."""

    delegation_token_secret_file: Path | None = Field(
        default=None,
        description="File with the secret of delegation tokens, the same in every process of the cluster, for its owner"
        " and the process' own group alone to read (Kafka: delegation.token.secret.key). Without, there are no tokens.",
    )
    delegation_token_other_secret_file: Path | None = Field(
        default=None,
        description="File with another secret that proves tokens, too: while one replaces the other.",
    )


def tokens_of(settings: TokenSettings, clock: Clock) -> ProcessTokens:
    """The tokens of a process. Raises StartRefusedError."""
    secrets = read_secrets(settings.delegation_token_secret_file, settings.delegation_token_other_secret_file)
    return ProcessTokens(secrets, clock)
