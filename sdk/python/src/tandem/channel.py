"""How a router is reached: address, TLS, credential, and what a channel to it needs."""

from __future__ import annotations

import dataclasses
import ipaddress
import json
import urllib.parse
from typing import Any

import grpc

VERSION = "0.1.0"
MESSAGE_LIMIT = 64 << 20
"""Largest message sent or received, in bytes, as at the router: a prompt of a million tokens fits."""

OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", MESSAGE_LIMIT),
    ("grpc.max_receive_message_length", MESSAGE_LIMIT),
    # A request may wait long for its first token: only pings tell a slow router from a dead connection.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    # Routers are replicas behind one name; one long connection would leave all but one idle.
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
    # What may be asked again is decided here, by the errors' own advice.
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.primary_user_agent", f"tandem-sdk-python/{VERSION}"),
]


@dataclasses.dataclass(frozen=True)
class Tls:
    """Certificates, as PEM. Without them: the system's authorities, and no certificate of one's own."""

    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    server_name: str | None = None
    """Name that the router's certificate must have, if not the URL's."""


@dataclasses.dataclass(frozen=True)
class Address:
    """What a URL says: `http://host:port` is plain text, `https://host:port` is TLS, `host:port` is the former."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, url: str) -> Address:
        parts = urllib.parse.urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
            raise ValueError(f"url must be http://host:port or https://host:port, not {url!r}")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), tls)

    @property
    def target(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"dns:///{host}:{self.port}"

    @property
    def loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def check_credential(self, plaintext_credential: bool) -> None:
        """A credential does not leave the machine in plain text unless it is said to."""
        if not (self.tls or self.loopback or plaintext_credential):
            raise ValueError("credential needs an https url, or plaintext_credential=True on a network that is trusted")


def channel_arguments(address: Address, tls: Tls | None) -> tuple[grpc.ChannelCredentials | None, list[tuple[str, Any]]]:
    """Credentials (None: plain text) and options of a channel, sync or asyncio."""
    if not address.tls:
        if tls is not None:
            raise ValueError("tls needs an https url")
        return None, OPTIONS
    tls = tls or Tls()
    options = list(OPTIONS)
    if tls.server_name is not None:
        options.append(("grpc.ssl_target_name_override", tls.server_name))
    return grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate), options
