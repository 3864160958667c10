"""The console beyond its machine, over a real `regnum up --acl`: visitors do what they may, under their names."""

import asyncio
import json
import os
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from regnum_client import Admin, TlsFiles
from regnum_client.admin.describing.offset_admin import PartitionOffsets
from regnum_client.records import TopicPartition
from regnum_console.app import PAGES
from regnum_console.serving import Options, serving
from regnum_local.certificates import client_files
from regnum_local.plan import CLUSTER_CA
from regnum_local.profile import Profile, own_profile_path, read_profile
from regnum_service.clock import SystemClock
from regnum_testing.certificates import CA, SERVER_CERT, SERVER_KEY
from regnum_testing.waiting import eventually, until, within

pytestmark = [pytest.mark.integration, pytest.mark.full, pytest.mark.timeout(900)]
COMMAND = (sys.executable, "-c", "import sys; from regnum_client.command import main; sys.exit(main())")
SIZE = ("--brokers", "1", "--elections", "1", "--metadata", "1", "--quotas", "0")


@asynccontextmanager
async def up(folder: Path) -> AsyncIterator[Profile]:
    """`regnum up --acl`, whose processes write their audit log into their logs."""
    log = folder.with_suffix(".log")
    about = {"REGNUM_PROFILE": str(folder.with_suffix(".profile")), "REGNUM_AUDIT_LOG_EXPORT": "stdout"}
    with log.open("ab") as written:
        process = await asyncio.create_subprocess_exec(
            *(*COMMAND, "up", "--acl", "--data-dir", str(folder), *SIZE),
            env={**os.environ, **about},
            stdout=written,
            stderr=written,
        )
    try:

        async def left() -> bool:
            assert process.returncode is None, log.read_text()
            return own_profile_path(folder).exists()

        await eventually(left, within_s=300)
        profile = read_profile(own_profile_path(folder))
        assert profile is not None
        yield profile
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


class Browser:
    """Keeps a cookie, and sends forms."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.cookie = ""

    async def ask(self, path: str, **fields: str) -> tuple[int, str]:
        """Status and body; with fields a form is sent."""
        body = urlencode(fields)
        lines = [
            f"{'POST' if fields else 'GET'} {path} HTTP/1.1",
            f"Host: localhost:{self.port}",
            f"Origin: https://localhost:{self.port}",
            f"Cookie: {self.cookie}",
            "Content-Type: application/x-www-form-urlencoded",
            f"Content-Length: {len(body)}",
            "Connection: close",
        ]
        trust = ssl.create_default_context(cafile=CA)
        reader, writer = await asyncio.open_connection("localhost", self.port, ssl=trust)
        writer.write("\r\n".join([*lines, "", body]).encode())
        head, _, text = (await within(reader.read())).decode().partition("\r\n\r\n")
        writer.close()
        if kept := re.search(r"(?im)^set-cookie: ([^;\r]+)", head):
            self.cookie = kept[1]
        return int(head.split()[1]), text


def client_of(folder: Path, name: str) -> TlsFiles:
    certificate, key = client_files(folder / "certs", name)
    return TlsFiles(ca=folder / "certs" / CLUSTER_CA, certificate=certificate, key=key)


def audited(folder: Path) -> Iterator[dict[str, Any]]:
    for file in sorted((folder / "logs").iterdir()):
        for line in file.read_text().splitlines():
            if line.startswith("{") and '"client_host"' in line:
                yield json.loads(line)


async def test_visitors_see_and_do_what_they_may_and_the_audit_log_names_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with up(folder) as profile:
        bootstrap = tuple(profile.bootstrap)
        async with (
            Admin(bootstrap, tls=client_of(folder, "admin")) as admin,
            Admin(bootstrap, tls=client_of(folder, "guest")) as guest,
        ):
            await admin.create_topic("secret-orders", partitions=1, replication_factor=1)
            tokens = {
                "admin": await admin.create_delegation_token(max_lifetime_s=3_600.0),
                "guest": await guest.create_delegation_token(max_lifetime_s=3_600.0),
            }
            options = Options(
                bootstrap=bootstrap,
                tls=client_of(folder, "guest"),
                host="0.0.0.0",  # noqa: S104 - beyond this machine
                port=0,
                traces=folder / "traces",
                writes=True,
                served_with=TlsFiles(certificate=SERVER_CERT, key=SERVER_KEY),
            )
            async with serving(options, SystemClock()) as running:
                port = int(running.address.rstrip("/").rpartition(":")[2])
                browsers = {name: Browser(port) for name in tokens}
                for name, browser in browsers.items():
                    for path, _ in PAGES:
                        status, text = await browser.ask(_filled(path))
                        assert (status, "secret-orders" in text.replace(_filled(path), "")) == (401, False)
                    assert (await browser.ask("/sign-in", token=f"{'i' * 22}.{'h' * 86}"))[0] == 401
                    status, text = await browser.ask("/sign-in", token=tokens[name].credential)
                    assert status == 303, text
                await _may_everything(browsers["admin"])
                await _may_nothing(browsers["guest"])
                (end,) = (await admin.list_offsets([TopicPartition("secret-orders", 0)])).values()
                assert isinstance(end, PartitionOffsets)
                assert end.high_watermark == 1
                await guest.expire_delegation_token(tokens["guest"].token.token_id)

                async def is_out() -> bool:
                    return (await browsers["guest"].ask("/topics"))[0] == 401

                await eventually(is_out, what="brokers hear that the token has ended")
                assert (await browsers["admin"].ask("/topics"))[0] == 200

        def named() -> set[tuple[str, bool]]:
            return {(line["principal"], line["token"]) for line in audited(folder) if line["event"] == "denied"}

        await until(lambda: ("User:guest", True) in named(), what="denials are in the audit log")
        assert named() == {("User:guest", True)}, "the console's own certificate asks for nothing"
        written = b"".join(file.read_bytes() for file in (folder / "logs").iterdir())
        assert not [name for name, one in tokens.items() if one.credential.partition(".")[2].encode() in written]


def _filled(path: str) -> str:
    filled = path.replace("{topic}", "secret-orders").replace("{partition:int}", "0").replace("{broker:int}", "1")
    return filled.replace("{group:path}", "billing").replace("{change}", "0")


async def _may_everything(browser: Browser) -> None:
    status, text = await browser.ask("/topics")
    assert (status, "secret-orders" in text) == (200, True)
    status, text = await browser.ask("/records/secret-orders")
    token = re.search(r'name="token" value="([^"]+)"', text)
    assert (status, token is not None) == (200, True)
    assert token is not None
    status, text = await browser.ask("/records/secret-orders", token=token[1], value="by admin")
    assert status == 303, text
    assert "by admin" in (await browser.ask("/records/secret-orders?partition=0&from=begin"))[1]


async def _may_nothing(browser: Browser) -> None:
    seen = {}
    token = ""
    for path, _ in PAGES:
        if path.startswith("/live/"):
            continue
        status, text = await browser.ask(_filled(path))
        seen[path] = (
            status,
            "secret-orders" in text.replace(_filled(path), "").replace("&#x27;secret-orders&#x27;", ""),
        )
        found = re.search(r'name="token" value="([^"]+)"', text)
        token = found[1] if found else token
    assert not {path: one for path, one in seen.items() if one[1] and one[0] == 200}, seen
    assert seen["/topics/{topic}"][0] in {403, 404}
    assert "Not known" in (await browser.ask("/brokers/1"))[1]
    assert seen["/events"][0] == seen["/changes"][0] == 403
    status, text = await browser.ask("/records/secret-orders", token=token, value="by guest")
    assert status in {403, 404}, text
