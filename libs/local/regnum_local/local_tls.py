"""TLS of a local cluster: certificates below its folder, and what each of those who connect to it shows."""

import ssl
from pathlib import Path
from typing import Final

from regnum_service.channel import Open, open_channel
from regnum_service.errors import ExitStatus, StartRefusedError
from regnum_service.tls.channels import opener
from regnum_service.tls.files import TlsFiles, WatchedFiles

from regnum_local.plan import CLUSTER_CA, STORE_ADMIN, STORES, Plan

CERTIFICATES: Final = "certs"
"""Folder of the certificates, below the folder of the cluster."""


class LocalTls:
    """Of one cluster."""

    def __init__(self, folder: Path) -> None:
        """Only assigns."""
        self.folder: Final = folder
        """Where the certificates are."""
        self._openers: Final[dict[str, Open]] = {}

    def prepare(self, plan: Plan) -> None:
        """Make the certificates that are not there yet, expire soon, or do not name the host of the clients' listeners.

        There is one of a guest, too. Raises StartRefusedError.
        """
        try:
            from regnum_local.certificates import ADMIN, GUEST, HOSTS, add_missing, add_store, add_token_secret  # noqa: PLC0415 - the library is there with services only
        except ImportError as error:
            raise StartRefusedError(
                f"certificates cannot be made here ({error}); install regnum[services]", exit_status=ExitStatus.FAILED
            ) from error
        processes = [member.name for member in plan.members if member.role not in STORES]
        hosts = tuple(dict.fromkeys((*HOSTS, plan.bind)))
        add_missing(self.folder, processes, hosts=hosts, clients=(ADMIN, GUEST))
        add_token_secret(self.folder)
        if plan.store is not None:
            add_store(self.folder, plan.store.name)

    def store_context(self) -> ssl.SSLContext:
        """What a probe of the embedded store shows, and what it checks the store with. Raises OSError."""
        context = ssl.create_default_context(cafile=self.folder / CLUSTER_CA)
        context.load_cert_chain(self.folder / f"{STORE_ADMIN}.pem", self.folder / f"{STORE_ADMIN}.key")
        return context

    @property
    def client(self) -> TlsFiles:
        """What a client shows, and what it checks brokers with."""
        shown = self.folder / "client-admin.pem"
        return TlsFiles(ca=self.folder / CLUSTER_CA, certificate=shown, key=shown.with_suffix(".key"))

    def opener(self, process: str, listener: str) -> Open:
        """How a channel to a listener of a process is opened: as a client, or with the process's own certificate."""
        name = "client-admin" if listener == "client" else process
        known = self._openers.get(name)
        if known is None:
            files = TlsFiles(
                ca=self.folder / CLUSTER_CA,
                certificate=self.folder / f"{name}.pem",
                key=self.folder / f"{name}.key",
            )
            known = self._openers[name] = opener(WatchedFiles(files))
        return known


class Plaintext:
    """What ``LocalTls`` is to a cluster that speaks TLS, to one that does not."""

    folder: Final = None
    client: Final = None

    def prepare(self, plan: Plan) -> None:
        """Nothing is needed."""

    def store_context(self) -> None:
        """Nothing is shown."""

    def opener(self, process: str, listener: str) -> Open:
        """The one way there is."""
        del process, listener
        return open_channel
