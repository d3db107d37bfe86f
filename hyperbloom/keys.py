"""Keys: Ed25519 identities, the keyed hash, discovery keys and key files.

A feed is named by an Ed25519 public key, and so is whoever writes to it. Nothing but a hash is
ever signed: every signature of the protocol covers a 32-byte keyed BLAKE2b digest of the message
(docs/protocol.md#hash). The hash of a feed's public key is its discovery key, which peers name in
the clear; who knows only that cannot read the feed's traffic, whose cipher is keyed with the
public key itself.

A secret key lives as its 32-byte seed, and on disk as 64 hexadecimal digits and a line feed in a
file that only its owner may read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nacl import bindings
from nacl.exceptions import BadSignatureError, CryptoError

from hyperbloom.credentials import cure_for_missing, is_open
from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = [
    "DRAFT_HASH_KEY",
    "HASH_BYTES",
    "HASH_KEY",
    "PUBLIC_KEY_BYTES",
    "SEED_BYTES",
    "SIGNATURE_BYTES",
    "Identity",
    "KeyFileError",
    "create_key_file",
    "discovery_key",
    "exchange_key",
    "keyed_hash",
    "load_key_file",
    "parse_public_key",
    "sync_folder",
    "verify_signature",
]

HASH_KEY: Final = b"---hyperbloom---"
"""Key of the protocol's hash (docs/protocol.md#hash)."""
DRAFT_HASH_KEY: Final = b"hyperbloom"
"""The same in the protocol's draft, whose text swaps key and input by a slip."""
PUBLIC_KEY_BYTES: Final = 32
SEED_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
HASH_BYTES: Final = 32

_KEY_DIGITS: Final = re.compile(r"[0-9A-Fa-f]{64}")
_KEY_FILE_MODE: Final = 0o600


def keyed_hash(*parts: bytes, key: bytes = HASH_KEY) -> bytes:
    """BLAKE2b-256 (RFC 7693) of the joined parts under a key of at most 64 bytes: 32 bytes."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES, key=key)
    for part in parts:
        digest.update(part)
    return digest.digest()


def discovery_key(feed_key: bytes, *, hash_key: bytes = HASH_KEY) -> bytes:
    """The 32 bytes by which peers name a feed without giving its public key away."""
    return keyed_hash(feed_key, key=hash_key)


@dataclass(frozen=True, slots=True)
class Identity:
    """An Ed25519 key pair (RFC 8032), made from its 32-byte seed.

    Identities of the same seed are equal. The seed never shows in ``repr``. Raises ValueError for
    a seed of another length.
    """

    seed: bytes = field(repr=False, compare=False)
    public_key: bytes = field(init=False)
    _secret_key: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.seed) != SEED_BYTES:
            raise ValueError(f"a seed has {SEED_BYTES} bytes, not {len(self.seed)}")
        public_key, secret_key = bindings.crypto_sign_seed_keypair(self.seed)
        object.__setattr__(self, "public_key", public_key)
        object.__setattr__(self, "_secret_key", secret_key)

    def __repr__(self) -> str:
        return f"Identity(public_key={self.public_key.hex()})"

    def sign(self, message: bytes) -> bytes:
        """The 64-byte signature over a message (elsewhere in the protocol: over its hash)."""
        return bindings.crypto_sign(message, self._secret_key)[:SIGNATURE_BYTES]

    def exchange_seed(self) -> bytes:
        """The private key (32 bytes) of the pair's X25519 form; `exchange_key` gives the public."""
        return bindings.crypto_sign_ed25519_sk_to_curve25519(self._secret_key)


def exchange_key(public_key: bytes) -> bytes:
    """An Ed25519 public key in its X25519 form (RFC 7748, 4.1): 32 bytes.

    Raises ValueError for what is no point of the curve, or of low order.
    """
    try:
        return bindings.crypto_sign_ed25519_pk_to_curve25519(public_key)
    except CryptoError:
        raise ValueError("it is no point of the curve") from None


def verify_signature(public_key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature over a message was made with the secret key of a public key.

    False, too, for keys and signatures of wrong length, for points that are not on the curve or
    of low order, and for signatures that are not in their only canonical form.
    """
    if len(public_key) != PUBLIC_KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        bindings.crypto_sign_open(signature + message, public_key)
    except BadSignatureError:
        return False
    return True


def parse_public_key(text: str) -> bytes:
    """Read a public key written as 64 hexadecimal digits.

    Raises ValueError for anything else. The text is not repeated in the message: it may be a
    secret key given by mistake.
    """
    if not _KEY_DIGITS.fullmatch(text):
        raise ValueError(
            f"a public key is 64 hexadecimal digits; this text of {len(text)} characters is not"
        )
    return bytes.fromhex(text)


class KeyFileError(HyperbloomError):
    """A key file could not be made or read; the message says why and what to do."""

    kind = ErrorKind.BAD_CONFIG


def create_key_file(path: str | os.PathLike[str], seed: bytes) -> Identity:
    """Write a seed to a new key file that nobody but its owner can ever read.

    The file and its entry in the folder are synced before this returns. Raises KeyFileError when
    the file exists (it is never overwritten) or cannot be written, ValueError for a bad seed.
    """
    path = Path(path)
    identity = Identity(seed)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, _KEY_FILE_MODE)
    except FileExistsError:
        raise KeyFileError(
            f"the key file {path} exists already; use that key, or choose another path"
        ) from None
    except OSError as error:
        raise KeyFileError(_cannot("create", path, error)) from error
    try:
        _write_key(descriptor, seed)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise KeyFileError(_cannot("write", path, error)) from error
    return identity


def load_key_file(path: str | os.PathLike[str]) -> Identity:
    """Read the identity in a key file.

    Raises KeyFileError when the file is missing, cannot be read, is not a regular file, may be
    read or written by others than its owner (but see `hyperbloom.credentials`), or does not hold 64
    hexadecimal digits (a final line feed may be absent).
    """
    path = Path(path)
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        cure = cure_for_missing(path) or "create one, or correct the path"
        raise KeyFileError(f"there is no key file {path}; {cure}") from None
    except OSError as error:
        raise KeyFileError(_cannot("read", path, error)) from error
    try:
        _check_key_file(path, descriptor)
        text = os.read(descriptor, 2 * SEED_BYTES + 2).decode("ascii", "replace")
    except OSError as error:
        raise KeyFileError(_cannot("read", path, error)) from error
    finally:
        os.close(descriptor)
    digits = text.removesuffix("\n")
    if not _KEY_DIGITS.fullmatch(digits):
        raise KeyFileError(
            f"the key file {path} does not hold exactly 64 hexadecimal digits; restore it from a "
            "copy, or create a new key at another path"
        )
    return Identity(bytes.fromhex(digits))


def _write_key(descriptor: int, seed: bytes) -> None:
    """Write and sync a key file that was just created, and close it."""
    with open(descriptor, "wb") as file:
        # A umask can only take from the mode asked for, even the owner's own right to read.
        os.fchmod(descriptor, _KEY_FILE_MODE)
        file.write(seed.hex().encode("ascii") + b"\n")
        file.flush()
        os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Have the entries of a folder on disk when this returns; raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_key_file(path: Path, descriptor: int) -> None:
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        raise KeyFileError(f"{path} is not a regular file; give the path of a key file")
    if is_open(path, descriptor):
        raise KeyFileError(
            f"the key file {path} is open to others than its owner (mode "
            f"{stat.S_IMODE(mode):04o}); run chmod 600 on it, and replace the key if somebody may "
            "have read it"
        )


def _cannot(action: str, path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"cannot {action} the key file {path} ({reason}); check its folder and permissions"
