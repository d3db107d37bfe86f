# mypy: disable-error-code="type-arg"
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Open(_message.Message):
    __slots__ = ("feed", "nonce")
    FEED_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    feed: bytes
    nonce: bytes
    def __init__(self, feed: _Optional[bytes] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class Handshake(_message.Message):
    __slots__ = ("id", "extensions", "signature", "chain")
    ID_FIELD_NUMBER: _ClassVar[int]
    EXTENSIONS_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    id: bytes
    extensions: _containers.RepeatedScalarFieldContainer[bytes]
    signature: bytes
    chain: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, id: _Optional[bytes] = ..., extensions: _Optional[_Iterable[bytes]] = ..., signature: _Optional[bytes] = ..., chain: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Sync(_message.Message):
    __slots__ = ("filter", "size", "n", "seed", "limit", "range")
    class Range(_message.Message):
        __slots__ = ("start", "end")
        START_FIELD_NUMBER: _ClassVar[int]
        END_FIELD_NUMBER: _ClassVar[int]
        start: bytes
        end: bytes
        def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ...) -> None: ...
    FILTER_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    N_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    filter: bytes
    size: int
    n: int
    seed: int
    limit: int
    range: Sync.Range
    def __init__(self, filter: _Optional[bytes] = ..., size: _Optional[int] = ..., n: _Optional[int] = ..., seed: _Optional[int] = ..., limit: _Optional[int] = ..., range: _Optional[_Union[Sync.Range, _Mapping]] = ...) -> None: ...

class Data(_message.Message):
    __slots__ = ("values", "signature")
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    signature: bytes
    def __init__(self, values: _Optional[_Iterable[bytes]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("start", "end", "limit")
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    start: bytes
    end: bytes
    limit: int
    def __init__(self, start: _Optional[bytes] = ..., end: _Optional[bytes] = ..., limit: _Optional[int] = ...) -> None: ...

class Link(_message.Message):
    __slots__ = ("link",)
    LINK_FIELD_NUMBER: _ClassVar[int]
    link: bytes
    def __init__(self, link: _Optional[bytes] = ...) -> None: ...
