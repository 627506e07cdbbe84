# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
# pylint: disable=unused-import
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class AllocateRequest(_message.Message):
    __slots__ = ("pool", "service", "sharing_key", "explicit", "families")
    POOL_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SHARING_KEY_FIELD_NUMBER: _ClassVar[int]
    EXPLICIT_FIELD_NUMBER: _ClassVar[int]
    FAMILIES_FIELD_NUMBER: _ClassVar[int]
    pool: str
    service: str
    sharing_key: str
    explicit: Explicit
    families: Families
    def __init__(
        self,
        pool: _Optional[str] = ...,
        service: _Optional[str] = ...,
        sharing_key: _Optional[str] = ...,
        explicit: _Optional[_Union[Explicit, _Mapping]] = ...,
        families: _Optional[_Union[Families, _Mapping]] = ...,
    ) -> None: ...

class Explicit(_message.Message):
    __slots__ = ("ips",)
    IPS_FIELD_NUMBER: _ClassVar[int]
    ips: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ips: _Optional[_Iterable[str]] = ...) -> None: ...

class Families(_message.Message):
    __slots__ = ("want_ipv4", "want_ipv6")
    WANT_IPV4_FIELD_NUMBER: _ClassVar[int]
    WANT_IPV6_FIELD_NUMBER: _ClassVar[int]
    want_ipv4: bool
    want_ipv6: bool
    def __init__(
        self, want_ipv4: _Optional[bool] = ..., want_ipv6: _Optional[bool] = ...
    ) -> None: ...

class AllocateResponse(_message.Message):
    __slots__ = ("ips",)
    IPS_FIELD_NUMBER: _ClassVar[int]
    ips: _containers.RepeatedCompositeFieldContainer[AllocatedIP]
    def __init__(self, ips: _Optional[_Iterable[_Union[AllocatedIP, _Mapping]]] = ...) -> None: ...

class AllocatedIP(_message.Message):
    __slots__ = ("ip",)
    IP_FIELD_NUMBER: _ClassVar[int]
    ip: str
    def __init__(self, ip: _Optional[str] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("pool", "service", "ip", "all")
    POOL_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    IP_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    service: str
    ip: str
    all: bool
    def __init__(
        self,
        pool: _Optional[str] = ...,
        service: _Optional[str] = ...,
        ip: _Optional[str] = ...,
        all: _Optional[bool] = ...,
    ) -> None: ...

class ReleaseResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: str
    def __init__(self, pool: _Optional[str] = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = (
        "in_use_v4",
        "in_use_v6",
        "size_v4",
        "size_v6",
        "has_known_capacity",
        "display_addresses",
    )
    IN_USE_V4_FIELD_NUMBER: _ClassVar[int]
    IN_USE_V6_FIELD_NUMBER: _ClassVar[int]
    SIZE_V4_FIELD_NUMBER: _ClassVar[int]
    SIZE_V6_FIELD_NUMBER: _ClassVar[int]
    HAS_KNOWN_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    in_use_v4: int
    in_use_v6: int
    size_v4: int
    size_v6: int
    has_known_capacity: bool
    display_addresses: _containers.RepeatedScalarFieldContainer[str]
    def __init__(
        self,
        in_use_v4: _Optional[int] = ...,
        in_use_v6: _Optional[int] = ...,
        size_v4: _Optional[int] = ...,
        size_v6: _Optional[int] = ...,
        has_known_capacity: _Optional[bool] = ...,
        display_addresses: _Optional[_Iterable[str]] = ...,
    ) -> None: ...
