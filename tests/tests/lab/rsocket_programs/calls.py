#!/usr/bin/env python3
"""Calls of rsockets, as a C program makes them: calls.py serve ADDRESS PORT | calls.py CASE ADDRESS PORT.

A server echoes what each peer sends until the peer's end, then sends how many bytes it was, and closes.
"""

import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import sys
import threading
import time

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


class TimeVal(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("micros", ctypes.c_long)]


def rselect(reads, writes, seconds):
    """How many are ready, and which. `seconds` may be None."""
    sets = []
    for fds in (reads, writes):
        words = (ctypes.c_uint64 * 16)()
        for fd in fds:
            words[fd // 64] |= 1 << fd % 64
        sets.append(words)
    wait = seconds and ctypes.byref(TimeVal(int(seconds), int(seconds % 1 * 1e6)))
    limit = max(reads + writes) + 1
    count = call("rselect", limit, *sets, None, wait)
    return count, *[[fd for fd in range(limit) if words[fd // 64] >> fd % 64 & 1] for words in sets]


def option(fd, name, value=None, level=socket.SOL_SOCKET):
    """Sets an option, or gives its number."""
    if value is not None:
        call("rsetsockopt", fd, level, name, value, len(value))
        return None
    number, length = ctypes.c_int(), ctypes.c_uint(4)
    found = (level, name, ctypes.byref(number), ctypes.byref(length))
    call("rgetsockopt", fd, *found)
    return number.value


def fill(fd):
    """Sends until the peer, which reads nothing more, takes nothing more; how much."""
    count, quiet_since = 0, time.monotonic()
    while time.monotonic() < quiet_since + 0.5:
        try:
            count += send(fd, bytes(1 << 16), socket.MSG_DONTWAIT)
            quiet_since = time.monotonic()
        except BlockingIOError:
            time.sleep(0.01)
    return count


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


def selected(host, port):
    """The same with rselect, and how it fails."""
    fd, (reads, writes) = connect(host, port), os.pipe()
    assert rselect([fd, reads], [], 0.05) == (0, [], [])
    assert rselect([fd, reads], [fd], 5) == (1, [], [fd])
    os.write(writes, b"x")
    assert rselect([fd, reads], [], 5) == (1, [reads], [])
    send(fd, b"y")
    assert rselect([fd], [], 5) == (1, [fd], [])
    assert rselect([fd, reads], [fd, writes], None) == (4, sorted([fd, reads]), sorted([fd, writes]))
    os.read(reads, 1)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    expect_error(errno.EINTR, rselect, [reads], [], 5)
    expect_error(errno.EINVAL, call, "rselect", -1, None, None, None, None)
    os.close(reads)
    expect_error(errno.EBADF, rselect, [reads], [], 5)
    call("rclose", fd)


def options(host, port):
    """A value that is too short is refused; what the RNIC has no number for is 1; flags of rsocket(3)."""
    fd = make()
    expect_error(errno.EINVAL, option, fd, socket.SO_LINGER, struct.pack("i", 1))
    assert option(fd, socket.TCP_KEEPCNT, level=socket.IPPROTO_TCP) == 1
    assert call("rfcntl", fd, fcntl.F_GETFD) == 0
    call("rclose", fd)
    fd = call("rsocket", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, 0)
    assert call("rfcntl", fd, fcntl.F_GETFD) == fcntl.FD_CLOEXEC
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
    assert option(fd, socket.SO_ERROR) == errno.ECONNREFUSED
    assert option(fd, socket.SO_ERROR) == 0, "it is told once"
    # The next connection has nothing of an error that nobody has asked for.
    expect_error(errno.EINPROGRESS, call, "rconnect", fd, *address(host, port + 1))
    assert rpoll([(fd, select.POLLOUT)], 5000)[0] & select.POLLERR
    expect_error(errno.EINPROGRESS, call, "rconnect", fd, *address(host, port))
    assert option(fd, socket.SO_ERROR) == 0
    call("rclose", fd)
    expect_error(errno.ESOCKTNOSUPPORT, call, "rsocket", socket.AF_INET, socket.SOCK_DGRAM, 0)
    expect_error(errno.ENOTCONN, receive, make(), 1)


def signals(host, port):
    """A transfer that a signal ends early gives its count; one that has none, EINTR."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    fd = connect(host, port)
    send(fd, b"abc")
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    assert receive(fd, 10, socket.MSG_WAITALL) == b"abc"
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    expect_error(errno.EINTR, receive, fd, 1)
    # The peer echoes, so it stops reading when nobody reads here.
    data = os.urandom(1 << 20) * 8
    signal.setitimer(signal.ITIMER_REAL, 1)
    count = send(fd, data)
    assert 0 < count < len(data), count
    got = []
    reader = threading.Thread(target=lambda: got.append(receive_all(fd)))
    reader.start()
    assert send(fd, data[count:]) == len(data) - count
    call("rshutdown", fd, socket.SHUT_WR)
    reader.join(60)
    assert got and got[0] == data + b"%d" % (len(data) + 3), "not what was sent"
    call("rclose", fd)


def closed_meanwhile(host, port):
    """A transfer whose rsocket another thread closes gives its count."""
    fd = connect(host, port)
    send(fd, b"abc")
    threading.Timer(0.5, call, ("rclose", fd)).start()
    assert receive(fd, 10, socket.MSG_WAITALL) == b"abc"


def sizes(host, port):
    """The rings of a connection stay, and so do the sizes that it tells."""
    fd = make()
    option(fd, socket.SO_SNDBUF, struct.pack("i", 50_000))
    call("rconnect", fd, *address(host, port))
    for name in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        before = option(fd, name)
        option(fd, name, struct.pack("i", 1_000_000))
        assert option(fd, name) == before, f"{option(fd, name)}, not {before}"
    assert option(fd, socket.SO_SNDBUF) == 100_000
    call("rclose", fd)


def gone(host, port):
    """Here both ends: a peer that goes before it is accepted is passed over."""
    listening = call("rsocket", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 0)
    call("rbind", listening, *address(host, port + 2))
    call("rlisten", listening, 8)

    def come():
        fd = call("rsocket", socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 0)
        expect_error(errno.EINPROGRESS, call, "rconnect", fd, *address(host, port + 2))
        return fd

    for others in (0, 1):
        first = come()
        assert rpoll([(listening, select.POLLIN)], 5000) == [select.POLLIN]
        call("rclose", first)
        time.sleep(0.5)
        if others:
            second = come()
            time.sleep(0.5)
            accepted = call("raccept", listening, None, None)
            assert rpoll([(second, select.POLLOUT)], 5000) == [select.POLLOUT]
            send(second, b"second")
            assert rpoll([(accepted, select.POLLIN)], 5000) == [select.POLLIN]
            assert receive(accepted, 6) == b"second"
        else:
            expect_error(errno.EAGAIN, call, "raccept", listening, None, None)


def cut(host, port):
    """The peer is killed: what came and went before is told first, then the failure, and that once."""
    receives, sends, told = connect(host, port), connect(host, port), connect(host, port)
    send(receives, b"abc")
    assert receive(receives, 3, socket.MSG_PEEK | socket.MSG_WAITALL)
    data = bytes(1 << 23)
    counts = []
    sender = threading.Thread(target=lambda: counts.append(send(sends, data)))
    sender.start()
    threading.Timer(1, print, ("waits",), {"flush": True}).start()
    assert receive(receives, 10, socket.MSG_WAITALL) == b"abc"
    expect_error(errno.ECONNRESET, receive, receives, 10)
    assert receive(receives, 10) == b""
    sender.join(30)
    assert counts and 0 < counts[0] < len(data), counts
    expect_error(errno.ECONNRESET, send, sends, data)
    expect_error(errno.EPIPE, send, sends, data)
    assert rpoll([(told, select.POLLIN)], 30_000)[0] & select.POLLERR
    assert option(told, socket.SO_ERROR) == errno.ECONNRESET
    assert option(told, socket.SO_ERROR) == 0, "it is told once"
    assert receive(told, 1) == b""


def alive(host, port):
    """The peer's host forgets the connections in silence: those with SO_KEEPALIVE learn of it, also while they are
    polled without a limit of time."""
    plain, asks, polled = (connect(host, port) for _ in range(3))
    for fd in (asks, polled):
        option(fd, socket.SO_KEEPALIVE, struct.pack("i", 1))
        option(fd, socket.TCP_KEEPIDLE, struct.pack("i", 1), socket.IPPROTO_TCP)
    for fd in (plain, asks, polled):
        send(fd, b"x")
        receive(fd, 1)
    threading.Timer(3, print, ("waits",), {"flush": True}).start()
    found = []
    poll_for_ever = lambda: found.extend(rpoll([(polled, select.POLLIN)], -1))
    polls = threading.Thread(target=poll_for_ever, daemon=True)
    polls.start()
    expect_error(errno.ECONNRESET, receive, asks, 1)
    polls.join(10)
    assert found and found[0] & select.POLLERR, found
    assert rpoll([(plain, select.POLLIN)], 1000) == [0]


def listens(host, port):
    """A listener whose own RNIC goes is readable and tells it, to poll, to accept and by SO_ERROR."""
    fd = make()
    call("rbind", fd, *address(host, port))
    call("rlisten", fd, 1)
    print("listens", flush=True)
    assert rpoll([(fd, select.POLLIN)], 20_000)[0] == select.POLLIN | select.POLLERR
    expect_error(errno.EIO, call, "raccept", fd, None, None)
    assert option(fd, socket.SO_ERROR) == errno.EIO
    call("rclose", fd)


def silent(host, port):
    """The peer falls silent: closing waits no longer than it is told to, and other threads not at all."""
    fds = [connect(host, port) for _ in range(4)]
    for fd in fds:
        assert fill(fd) > 0
    print("full", file=sys.stderr)
    assert sys.stdin.readline() == "silent\n"
    for fd, linger, least, most in (
        (fds[0], None, 2, 10),
        (fds[1], (1, 0), 0, 2),
        (fds[2], (1, 5), 5, 15),
        (fds[3], (0, 5), 2, 10),
    ):
        if linger:
            option(fd, socket.SO_LINGER, struct.pack("ii", *linger))
        begin = time.monotonic()
        call("rshutdown", fd, socket.SHUT_WR)
        call("rclose", fd)
        took = time.monotonic() - begin
        assert least <= took < most, f"SO_LINGER {linger}: {took} s"


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
