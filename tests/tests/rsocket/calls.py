#!/usr/bin/env python3
"""Calls of rsockets, as a C program makes them: calls.py serve ADDRESS PORT | calls.py CASE ADDRESS PORT.

A server echoes what each peer sends until the peer's end, then sends how many bytes it was, and closes.
"""

import ctypes
import errno
import os
import select
import socket
import sys
import threading

LIBRARY = ctypes.CDLL("librdmacm.so.1", use_errno=True)
for name in ("rrecv", "rsend", "rwritev", "rreadv"):
    getattr(LIBRARY, name).restype = ctypes.c_ssize_t


class PollFd(ctypes.Structure):
    _fields_ = [("fd", ctypes.c_int), ("events", ctypes.c_short), ("revents", ctypes.c_short)]


class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class SockAddr(ctypes.Structure):
    _fields_ = [
        ("family", ctypes.c_ushort),
        ("port", ctypes.c_ushort),
        ("address", ctypes.c_ubyte * 4),
        ("zero", ctypes.c_ubyte * 8),
    ]


def call(name, *arguments):
    result = getattr(LIBRARY, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def address(host, port):
    found = SockAddr(family=socket.AF_INET, port=socket.htons(port))
    found.address[:] = socket.inet_aton(host)
    return ctypes.byref(found), ctypes.sizeof(found)


def make():
    return call("rsocket", socket.AF_INET, socket.SOCK_STREAM, 0)


def connect(host, port):
    fd = make()
    call("rconnect", fd, *address(host, port))
    return fd


def receive(fd, most, flags=0):
    buffer = ctypes.create_string_buffer(most)
    count = call("rrecv", fd, buffer, ctypes.c_size_t(most), flags)
    return buffer.raw[:count]


def receive_all(fd):
    got = b""
    while part := receive(fd, 1 << 16):
        got += part
    return got


def send(fd, data, flags=0):
    return call("rsend", fd, data, ctypes.c_size_t(len(data)), flags)


def rpoll(asked, timeout):
    fds = (PollFd * len(asked))(*[PollFd(fd, events, 0) for fd, events in asked])
    call("rpoll", fds, len(asked), timeout)
    return [entry.revents for entry in fds]


def expect_error(number, act, *arguments):
    try:
        result = act(*arguments)
    except OSError as error:
        assert error.errno == number, f"{error}, not {errno.errorcode[number]}"
    else:
        raise AssertionError(f"{result}, not {errno.errorcode[number]}")


def serve(host, port):
    listening = make()
    call("rbind", listening, *address(host, port))
    call("rlisten", listening, 8)
    while True:
        fd = call("raccept", listening, None, None)
        threading.Thread(target=echo, args=(fd,), daemon=True).start()


def echo(fd):
    count = 0
    try:
        while part := receive(fd, 1 << 16):
            count += len(part)
            send(fd, part)
        send(fd, b"%d" % count)
    except ConnectionResetError:
        print("a peer went away", flush=True)
        assert receive(fd, 1) == b"", "it is told once"
    call("rclose", fd)


def stay(host, port):
    """A peer that is killed."""
    send(connect(host, port), b"here")
    print("here", flush=True)
    threading.Event().wait()


def halves(host, port):
    """Ending one direction leaves the other."""
    fd = connect(host, port)
    send(fd, b"first")
    call("rshutdown", fd, socket.SHUT_WR)
    expect_error(errno.EPIPE, send, fd, b"late")
    got = receive_all(fd)
    assert got == b"first5", got
    assert receive(fd, 1) == b"", "the end stays"
    call("rclose", fd)
    expect_error(errno.EBADF, receive, fd, 1)


def flags(host, port):
    """MSG_DONTWAIT, MSG_PEEK and MSG_WAITALL; several elements."""
    fd = connect(host, port)
    expect_error(errno.EAGAIN, receive, fd, 1, socket.MSG_DONTWAIT)
    parts = [ctypes.create_string_buffer(text, len(text)) for text in (b"abc", b"", b"defgh")]
    vector = (IoVec * 3)(*[IoVec(ctypes.addressof(part), len(part)) for part in parts])
    assert call("rwritev", fd, vector, 3) == 8
    assert receive(fd, 8, socket.MSG_PEEK | socket.MSG_WAITALL)[:1] == b"a"
    assert receive(fd, 8, socket.MSG_WAITALL) == b"abcdefgh"
    call("rclose", fd)


def poll(host, port):
    """Rsockets and a pipe, polled together."""
    fd, (reads, writes) = connect(host, port), os.pipe()
    both = [(fd, select.POLLIN), (reads, select.POLLIN)]
    assert rpoll(both, 50) == [0, 0]
    os.write(writes, b"x")
    assert rpoll(both, 5000) == [0, select.POLLIN]
    os.read(reads, 1)
    assert rpoll([(fd, select.POLLIN | select.POLLOUT)], 5000) == [select.POLLOUT]
    send(fd, b"y")
    assert rpoll(both, 5000) == [select.POLLIN, 0]
    assert rpoll([(-1, select.POLLIN)] + both, 5000) == [0, select.POLLIN, 0]
    threading.Timer(0.3, os.write, (writes, b"z")).start()
    receive(fd, 1)
    assert rpoll(both, 5000) == [0, select.POLLIN]
    call("rclose", fd)


def threads(host, port):
    """One thread sends while others receive and poll on the same rsocket."""
    fd = connect(host, port)
    data = os.urandom(1 << 20) * 4
    got = []
    reader = threading.Thread(target=lambda: got.append(receive_all(fd)))
    reader.start()
    polls = threading.Thread(target=lambda: [rpoll([(fd, select.POLLOUT)], 20) for _ in range(20)])
    polls.start()
    assert send(fd, data) == len(data)
    call("rshutdown", fd, socket.SHUT_WR)
    reader.join(60)
    assert got and got[0] == data + b"%d" % len(data), "not what was sent"
    polls.join(60)
    call("rclose", fd)


def refused(host, port):
    """Where nobody listens, in a call that waits and in one that does not; and datagrams."""
    expect_error(errno.ECONNREFUSED, connect, host, port + 1)
    fd = call("rsocket", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 0)
    expect_error(errno.EINPROGRESS, call, "rconnect", fd, *address(host, port + 1))
    found = rpoll([(fd, select.POLLOUT)], 5000)
    assert found[0] & select.POLLERR, found
    value, length = ctypes.c_int(), ctypes.c_uint(4)
    option = (socket.SOL_SOCKET, socket.SO_ERROR, ctypes.byref(value), ctypes.byref(length))
    call("rgetsockopt", fd, *option)
    assert value.value == errno.ECONNREFUSED, value.value
    call("rclose", fd)
    expect_error(errno.ESOCKTNOSUPPORT, call, "rsocket", socket.AF_INET, socket.SOCK_DGRAM, 0)
    expect_error(errno.ENOTCONN, receive, make(), 1)


def many(host, port):
    """Connections one after the other and side by side."""
    for _ in range(10):
        fds = [connect(host, port) for _ in range(5)]
        for fd in fds:
            send(fd, b"%d" % fd)
        for fd in fds:
            call("rshutdown", fd, socket.SHUT_WR)
            text = b"%d" % fd
            assert receive_all(fd) == text + b"%d" % len(text)
            call("rclose", fd)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], int(sys.argv[3]))
