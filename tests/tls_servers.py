"""Servers on 127.0.0.1 that say what a test has them say: over TLS with a CA of the test, or plain.

A server answers each connection by a function of the request. What it raises when the client
leaves is expected; the server ends with its `with` block, and so do its connections.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

#: Gets the connection and the request.
Answering = Callable[[socket.socket, bytes], object]

#: Seconds a server waits for a client before it gives up.
CEILING = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA; `file` is its certificate, as SSL_CERT_FILE names it."""

    file: Path
    key: ec.EllipticCurvePrivateKey
    name: x509.Name

    @classmethod
    def make(cls, folder: Path) -> Authority:
        """A new one, which keeps its files in a folder."""
        key, name = ec.generate_private_key(ec.SECP256R1()), _name("CA of a test")
        certificate = _signed(key, name, key, name, ca=True)
        file = folder / "ca.pem"
        file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return cls(file=file, key=key, name=name)

    def be_trusted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have this process and its children trust it alone, and ask no proxy."""
        monkeypatch.setenv("SSL_CERT_FILE", str(self.file))
        for name in ("https_proxy", "http_proxy", "all_proxy", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
            monkeypatch.delenv(name.upper(), raising=False)

    def context(self, *names: str, self_signed: bool = False) -> ssl.SSLContext:
        """What a server needs that has these names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(names[0])
        certificate = (
            _signed(key, subject, key, subject, names=names)
            if self_signed
            else _signed(key, subject, self.key, self.name, names=names)
        )
        pem = self.file.parent / f"{abs(hash((names, self_signed)))}.pem"
        pem.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        return context


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(
    key: ec.EllipticCurvePrivateKey,
    subject: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    *,
    names: Sequence[str] = (),
    ca: bool = False,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if ca:
        builder = builder.add_extension(_CA_KEY_USAGE, critical=True)
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
        )
    return builder.sign(signer, hashes.SHA256())


_CA_KEY_USAGE = x509.KeyUsage(
    digital_signature=True, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
    encipher_only=False, decipher_only=False,
)  # fmt: skip


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


class TlsServer:
    """Takes connections in a thread, and answers each in one of its own."""

    def __init__(self, answer: Answering, context: ssl.SSLContext | None) -> None:
        self._answer = answer
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._serve)]
        self._connections: list[socket.socket] = []
        self._ended = threading.Event()
        self.requests: list[bytes] = []
        """The requests so far."""

    @property
    def ended(self) -> threading.Event:
        """Set when the test is over: for answers that never end by themselves."""
        return self._ended

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        """Where this server is asked."""
        return f"{'https' if self._context else 'http'}://{host}:{self.port}{path}"

    def __enter__(self) -> TlsServer:
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        for connection in (self._listening, *self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(CEILING)
            assert not thread.is_alive()
        for connection in (self._listening, *self._connections):
            connection.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._take, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _take(self, plain: socket.socket) -> None:
        plain.settimeout(CEILING)
        # Else an answer waits until the tickets of TLS before it are acknowledged.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A connection that a test has cut is no connection of TLS any more.
        with suppress(OSError, ValueError):
            connection: socket.socket = plain
            if self._context is not None:
                connection = self._context.wrap_socket(
                    plain.dup(), server_side=True, do_handshake_on_connect=False
                )
            with connection:
                if isinstance(connection, ssl.SSLSocket):
                    connection.do_handshake()
                request = _received(connection)
                self.requests.append(request)
                self._answer(connection, request)
                if isinstance(connection, ssl.SSLSocket):
                    connection.unwrap()


def _received(connection: socket.socket) -> bytes:
    """A request: its head, and a body of its Content-Length."""
    found = b""
    # The hello of TLS is no request, and waits for an answer.
    while b"\r\n\r\n" not in found and found[:1] != b"\x16" and (some := connection.recv(1 << 16)):
        found += some
    head, _, body = found.partition(b"\r\n\r\n")
    length = re.search(rb"\r\nContent-Length: (\d+)", head)
    while length and len(body) < int(length[1]) and (some := connection.recv(1 << 16)):
        found, body = found + some, body + some
    return found


def plainly(body: bytes, *headers: bytes, status: bytes = b"200 OK") -> Answering:
    """An answer as it should be."""
    head = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), b"Connection: close"]
    whole = b"\r\n".join([*head, *headers, b"", body])
    return lambda connection, _: connection.sendall(whole)


def saying(raw: bytes) -> Answering:
    """These bytes, and the end of TLS behind them."""
    return lambda connection, _: connection.sendall(raw)


def moved(location: str, status: int = 302) -> Answering:
    """A redirect."""
    return plainly(b"", b"Location: " + location.encode(), status=b"%d Moved" % status)


def tunnel(server: TlsServer, asked: list[bytes]) -> Answering:
    """What a proxy does on CONNECT: all goes to `server`, whatever was asked for."""

    def answer(connection: socket.socket, head: bytes) -> None:
        asked.append(head)
        with socket.create_connection(("127.0.0.1", server.port), CEILING) as onward:
            connection.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
            back = threading.Thread(target=_pump, args=(onward, connection))
            back.start()
            _pump(connection, onward)
            back.join(CEILING)

    return answer


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while some := source.recv(1 << 16):
            sink.sendall(some)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
