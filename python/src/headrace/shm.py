"""Messages in memory that a gateway on the same host shares with one stream."""

import contextlib
import ctypes
import json
import mmap
import os
import socket
import struct
import threading
from typing import Self

import pyarrow as pa
from pyarrow import flight

# What comes with the descriptor: a mark, the bytes of a slot, and how many slots there are.
_GREETING = struct.Struct("<8sQQ")
_MAGIC = b"hrshm1\0\0"
_JOINED = b"\1"

_NOTICE = struct.Struct("<IIQ")  # slot, bytes of metadata, bytes of the message behind them
_WIRE = 0xFFFFFFFF  # the slot of a message that comes over Flight
_ALIGN = 64
_TAKEN = 0x80  # with a slot's number: its message was taken; without, the slot is given back
_TELL = 4  # events that are told at once

_PATIENCE = 2.0  # seconds that the gateway may take for each step of handing the memory over: it takes no milliseconds
HEADER = b"headrace-shm"

_forks = 0  # of this process


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_count_fork)


class _Link(socket.socket):
    """A connection that ends when nothing refers to it any more."""

    __slots__ = ()

    def __del__(self) -> None:  # the one that is inherited warns
        try:
            self.close()
        except AttributeError:
            return  # it was never made, for want of descriptors


class Ring:
    """The slots of one stream, read by one thread at a time; any may end it."""

    def __init__(self, link: socket.socket, memory: mmap.mmap, stride: int, key: str, limit: float) -> None:
        """Takes over a connection.

        Args:
            link: to the gateway.
            memory: all slots.
            stride: bytes of each.
            key: what the gateway knows the ring by.
            limit: seconds that nothing may come.
        """
        self.key = key
        self._link = link
        self._link.settimeout(limit)
        self._memory = memory
        self._stride = stride
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self._came = b""  # notices that were not looked at yet
        self._told = bytearray()  # events that the gateway does not know of yet
        self._telling = threading.Lock()  # held by whoever tells it
        self._ended = False

    @classmethod
    def join(cls, client: flight.FlightClient, options: flight.FlightCallOptions, limit: float) -> Self | None:
        """Asks the gateway for a ring; None where it has none, or not for this process: it is elsewhere."""
        if not hasattr(socket, "recv_fds"):
            return None
        try:
            (answer,) = client.do_action(flight.Action("headrace.shm", b""), options)
            offer = json.loads(answer.body.to_pybytes())
            return cls._connect(offer["socket"], offer["key"], limit)
        except Exception:  # whoever answers may answer anything
            return None  # the stream itself will tell if anything is wrong with the gateway

    @classmethod
    def _connect(cls, address: str, key: str, limit: float) -> Self:
        link = _Link(socket.AF_UNIX)
        descriptors: list[int] = []
        try:
            link.settimeout(min(_PATIENCE, limit / 8))  # the stream itself has to come within the limit, too
            link.connect("\0" + address[1:] if address.startswith("@") else address)
            link.sendall(key.encode())
            greeting, descriptors, _, _ = socket.recv_fds(
                link, _GREETING.size, 1, getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
            if len(greeting) != _GREETING.size or len(descriptors) != 1:
                raise OSError("no memory was handed over")
            magic, stride, slots = _GREETING.unpack(greeting)
            if magic != _MAGIC:
                raise OSError("this is not the memory of a gateway that this client knows")
            return cls(link, mmap.mmap(descriptors[0], stride * slots), stride, key, limit)
        except BaseException:
            link.close()
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def joined(self) -> bool:
        """Whether the stream whose schema has come uses the ring."""
        limit = self._link.gettimeout()
        self._link.settimeout(0)  # with any other, Python waits for something to come, whatever the flags
        try:
            return self._link.recv(1) == _JOINED
        except OSError:
            return False
        finally:
            self._link.settimeout(limit)

    def read(self, schema: pa.Schema) -> tuple[pa.RecordBatch, bytes] | None:
        """Returns the next message and its metadata; None if Flight has it, or the reason why there is none.

        The record batch lies in the slot, which is given back when nothing refers to its memory any more.

        Raises:
            TimeoutError: nothing came.
        """
        if len(self._came) < _NOTICE.size and not self._receive():
            return None
        slot, meta, size = _NOTICE.unpack_from(self._came)
        self._came = self._came[_NOTICE.size :]
        if slot == _WIRE:
            return None
        start = (meta + _ALIGN - 1) // _ALIGN * _ALIGN
        first = slot * self._stride
        memory = pa.foreign_buffer(self._address + first + start, size, base=_Slot(self, slot))
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(memory), schema)
        self._tell(slot | _TAKEN)
        return batch, self._memory[first : first + meta]

    def end(self) -> None:
        """Lets a thread that reads wait no longer for messages when it has had those that are there."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RD)
        self._flush()

    def _receive(self) -> bool:
        """Waits for notices; False when there are no more."""
        self._flush()
        while len(self._came) < _NOTICE.size:
            try:
                came = self._link.recv(1 << 12)
            except TimeoutError:
                raise
            except OSError:
                return False
            if not came:
                return False
            self._came += came
        return True

    def _tell(self, event: int) -> None:
        self._told.append(event)
        if len(self._told) >= _TELL:
            self._flush()

    def give_back(self, slot: int) -> None:
        """Notes, in any thread, that a slot is in use no more."""
        self._told.append(slot)
        if self._ended:  # nobody will read on and tell
            self._flush()

    def _flush(self) -> None:
        """Tells the gateway; if it has gone, it wants nothing back.

        Two threads at once would mix up the order. Nobody waits for the other, for a slot may be given back anywhere,
        also while this very thread tells; whoever tells looks again for what was added meanwhile.
        """
        while self._told and self._telling.acquire(blocking=False):
            try:
                told = bytes(self._told)
                del self._told[: len(told)]
                with contextlib.suppress(OSError):
                    self._link.sendall(told)
            finally:
                self._telling.release()


class _Slot:
    """A slot in use."""

    __slots__ = ("_forks", "_number", "_ring")

    def __init__(self, ring: Ring, number: int) -> None:
        self._ring = ring
        self._number = number
        self._forks = _forks

    def __del__(self) -> None:
        # A child that was forked meanwhile may still read the slot, so nobody gives it back.
        if self._forks == _forks:
            self._ring.give_back(self._number)
