"""Settings of a service: command-line flags first, then REGNUM_* environment variables, then the defaults."""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError
from regnum_model.nodes import Address, MalformedNodeError
from regnum_model.nodes.processes import is_anywhere
from regnum_model.principals import NOBODY, Principal
from regnum_telemetry.build import this_build
from regnum_telemetry.tracing import FILES_MAX_BYTES

from regnum_service.access.name_lists import parse_names
from regnum_service.errors import ExitStatus

SESSION_TIMEOUT_S_MIN_ETCD = 5.0
"""Losing its leader stops etcd's writes for about 3 s; a shorter session would end with it (safety rule S8)."""


def _check_address(text: str) -> str:
    try:
        Address.parse(text)
    except MalformedNodeError as error:
        raise ValueError(f"{error}; give for example 127.0.0.1:9092") from None
    return text


AddressText = Annotated[str, AfterValidator(_check_address)]
"""``host:port`` or ``[address]:port``, checked; read it with ``Address.parse``."""

_COMMAS = re.compile(r",\s*User:")


class ServiceSettings(BaseSettings):
    """What every service is told. Field ``run_dir`` is flag ``--run-dir`` and variable ``REGNUM_RUN_DIR``."""

    model_config = SettingsConfigDict(
        env_prefix="REGNUM_",
        frozen=True,
        extra="forbid",
        cli_kebab_case=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    coordination: str = Field(description="URL of the coordination store, for example etcd://127.0.0.1:2379.")
    require_store_authentication: bool = Field(
        default=False,
        description="Whether a coordination store that lets in clients without certificate and user is refused at"
        " the start: a client that reaches it may change access rules and everything else. Without, it is warned of"
        " where authorizer is acl and other machines may reach the store.",
    )
    session_timeout_s: float = Field(
        default=6.0, ge=1.0, le=300.0, description="Session time-out of the store in seconds; at least 5 on etcd."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of log lines that are written."
    )
    traces_dir: Path | None = Field(
        default=None,
        description="Folder for spans as OTLP/JSON lines; without it, spans go only where OTEL_* variables say.",
    )
    traces_max_bytes: int = Field(
        default=FILES_MAX_BYTES,
        ge=2**20,
        description="Bytes of this process' files in traces-dir together; at a quarter of that a file is set aside, and"
        " the oldest of them go.",
    )
    metrics_listen: AddressText | None = Field(
        default=None,
        description="Where Prometheus reads metrics (GET /metrics), host:port; all that can connect may read them. "
        "Without, they are not shown.",
    )
    health_listen: AddressText | None = Field(
        default=None,
        description="Where health is asked in plaintext, host:port: Check of grpc.health.v1 and nothing else, for"
        " probes that cannot speak TLS (Kubernetes'). Open before anything else is; without it, health is told at the"
        " other listeners alone, once those are open.",
    )
    run_dir: Path | None = Field(
        default=None, description="Folder for what the process remembers between two runs; without it, nothing."
    )

    audit_log: Path | None = Field(
        default=None,
        description="File for the audit log: a JSON line for each mutation; what was refused (denials, changes that"
        " failed, failed authentication) goes to FILE.denied beside it. Without it, no file is kept.",
    )
    audit_log_max_bytes: int = Field(
        default=64 * 2**20,
        ge=2**16,
        description="Bytes at which a file of the audit log is set aside, as FILE.1 or FILE.denied.1, and begun anew.",
    )
    audit_log_files: int = Field(
        default=9,
        ge=0,
        le=1_000,
        description="Files of the audit log that were set aside and are kept, so many of each kind; the oldest goes"
        " first.",
    )
    audit_log_export: Literal["none", "stdout", "otlp"] = Field(
        default="none",
        description="Where the lines of the audit log go as well, or instead where no file is named: to standard"
        " output, or to a collector as OTLP logs over gRPC (OTEL_EXPORTER_OTLP_LOGS_ENDPOINT or"
        " OTEL_EXPORTER_OTLP_ENDPOINT).",
    )

    authorizer: Literal["none", "acl"] = Field(
        default="none",
        description="How calls are authorized: none (every client may do everything), or acl: by the access rules in"
        " the store (regnum acls), which needs TLS between processes: callers have no identity otherwise.",
    )
    super_users: str = Field(
        default="",
        description="Principals that may do everything, separated by semicolons: User:CN=node-1,O=Example;User:admin."
        " One that holds a semicolon or quotes goes into double quotes, a quote in it twice. Name those of the"
        " cluster's own processes in internal-super-users (Kafka: super.users).",
    )
    internal_super_users: str = Field(
        default="",
        description="Principals of the cluster's own processes, written as super-users are: they may do everything at"
        " the listeners between processes, also before the rules are read. At others they are as any other, even where"
        " super-users names them, so that no certificate of a client is worth more for its name.",
    )
    allow_everyone_if_no_acl_found: bool = Field(
        default=False,
        description="Whether a resource that no access rule is about may be used by all (Kafka:"
        " allow.everyone.if.no.acl.found).",
    )

    @property
    def health_address(self) -> Address | None:
        """Where health is told in plaintext; None: nowhere."""
        return None if self.health_listen is None else Address.parse(self.health_listen)

    @field_validator("super_users", "internal_super_users")
    @classmethod
    def _check_super_users(cls, text: str) -> str:
        if _COMMAS.search(text) and '"' not in text:
            raise ValueError(
                "commas do not separate principals, semicolons do; one with a comma goes into double quotes"
            )
        for name in parse_names(text):
            try:
                principal = Principal.parse(name)
            except ValueError as error:
                raise ValueError(f"{error}, several of them separated by semicolons") from None
            if principal.name == "*" or principal == NOBODY:
                raise ValueError(f"{name} stands for every client; name principals that may do everything one by one")
        return text

    @property
    def super_user_names(self) -> frozenset[str]:
        """Each of them, as ``User:name``."""
        return frozenset(parse_names(self.super_users))

    @property
    def internal_super_user_names(self) -> frozenset[str]:
        """The same of the cluster's own processes."""
        return frozenset(parse_names(self.internal_super_users))

    @model_validator(mode="after")
    def _check_authorizer(self) -> "ServiceSettings":
        if self.authorizer == "acl" and getattr(self, "internal_tls_certificate", None) is None:
            raise ValueError(
                "authorizer is acl, and between processes there is no TLS: a broker could not be told from a client;"
                " give internal-tls-certificate, internal-tls-key and internal-tls-ca, or authorizer none"
            )
        if self.authorizer == "none" and (self.super_users or self.allow_everyone_if_no_acl_found):
            raise ValueError(
                "super-users and allow-everyone-if-no-acl-found mean nothing while authorizer is none, and every client"
                " may do everything; give authorizer acl, or leave them out"
            )
        return self

    @model_validator(mode="after")
    def _check_session_timeout(self) -> "ServiceSettings":
        if self.coordination.startswith("etcd:") and self.session_timeout_s < SESSION_TIMEOUT_S_MIN_ETCD:
            raise ValueError(f"session-timeout-s is {self.session_timeout_s:g}; etcd needs at least 5 (safety rule S8)")
        return self

    @model_validator(mode="after")
    def _check_advertised(self) -> "ServiceSettings":
        for field in type(self).model_fields:
            name, _, kind = field.rpartition("_")
            # Nobody is told where the metrics are, or where probes ask.
            if kind not in {"listen", "advertised"} or name in {"metrics", "health"}:
                continue
            told: str | None = getattr(self, field)
            if told is None or not is_anywhere(Address.parse(told).host):
                continue
            if kind == "advertised" or getattr(self, f"{name}_advertised", None) is None:
                raise ValueError(
                    f"{field.replace('_', '-')} is {told}, where no client can connect to; "
                    f"give --{name}-advertised an address at which others reach this process"
                )
        return self


def advertised(told: str | None, listener: Address) -> Address:
    """Where others reach a listener: the address they were told, or where it listens."""
    return listener if told is None else Address.parse(told)


SettingsT = TypeVar("SettingsT", bound=BaseSettings)


def load(settings_class: type[SettingsT], arguments: Sequence[str] | None = None) -> SettingsT:
    """Read the settings (``sys.argv`` when no arguments are given); on errors say which and exit with status 2.

    ``--version`` says which build it is, and is the end of it.
    """
    flags = sys.argv[1:] if arguments is None else list(arguments)
    if "--version" in flags:
        sys.stdout.write(f"{this_build()}\n")
        sys.exit(ExitStatus.DONE)
    try:
        return settings_class(_cli_parse_args=flags)
    except ValidationError as error:
        lines = [_line(str(item["loc"][0]) if item["loc"] else "", item["msg"]) for item in error.errors()]
    except SettingsError as error:
        lines = [str(error)]
    sys.stderr.write("".join(f"{line}\n" for line in (*lines, "see --help for all settings")))
    sys.exit(ExitStatus.WRONG_USE)


def _line(field: str, message: str) -> str:
    if not field:
        return message.removeprefix("Value error, ")
    flag = "--" + field.replace("_", "-")
    return f"{flag} (or REGNUM_{field.upper()}): {message.removeprefix('Value error, ')}"
