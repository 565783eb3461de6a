#!/usr/bin/python3
"""Copies a file to another host: the receiver gets it by RDMA Reads.

    copy.py receive 198.18.0.2 7475 COPY
    copy.py send 198.18.0.2 7475 FILE

The sender registers its file for remote reading and Sends an offer: where it is, how long it is, and its CRC-32.
The receiver Reads it piece by piece, writes it to the disk, and Sends back the length and the CRC-32 of what it
has. The sender compares. copy.c speaks the same.
"""

import struct
import sys
import zlib

import pyverbs.cm_enums as cm
import pyverbs.enums as verbs
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.pyverbs_error import PyverbsError
from pyverbs.qp import QPCap, QPInitAttr

PIECE = 1 << 20
# Address, length, rkey, CRC-32.
OFFER = struct.Struct("!QQII")
# Length, CRC-32, nothing.
ANSWER = struct.Struct("!QII")


def endpoint(address):
    """An endpoint with a queue pair, or one that listens."""
    attributes = QPInitAttr(
        qp_type=verbs.IBV_QPT_RC,
        sq_sig_all=True,
        cap=QPCap(max_send_wr=2, max_recv_wr=1, max_send_sge=1, max_recv_sge=1),
    )
    return CMID(creator=address, qp_init_attr=attributes)


def complete(completion):
    """Checks one completion."""
    if completion is None or completion.status != verbs.IBV_WC_SUCCESS:
        raise SystemExit(f"copy.py: work failed: {completion}")


def receive(host, port, name):
    address = AddrInfo(src=host, src_service=port, port_space=cm.RDMA_PS_TCP, flags=cm.RAI_PASSIVE)
    listener = endpoint(address)
    listener.listen(backlog=1)
    with listener.get_request() as connection:
        offers = connection.reg_msgs(OFFER.size)
        answers = connection.reg_msgs(ANSWER.size)
        piece = connection.reg_msgs(PIECE)
        # Posted before the connection is accepted, so that no message comes too early.
        connection.post_recv(offers)
        connection.accept()
        complete(connection.get_recv_comp())

        start, length, rkey, offered = OFFER.unpack(offers.read(OFFER.size, 0))
        done, crc = 0, 0
        with open(name, "wb") as file:
            while done < length:
                count = min(PIECE, length - done)
                connection.post_read(piece, count, start + done, rkey, 0)
                complete(connection.get_send_comp())
                part = piece.read(count, 0)
                file.write(part)
                crc = zlib.crc32(part, crc)
                done += count
        answers.write(ANSWER.pack(done, crc, 0), ANSWER.size)
        connection.post_send(answers, 0)
        complete(connection.get_send_comp())
        print(f"received {done} bytes, CRC-32 {crc:08x}", flush=True)
        connection.disconnect()
    listener.close()
    return 0 if crc == offered else 1


def send(host, port, name):
    with open(name, "rb") as file:
        content = file.read()
    crc = zlib.crc32(content)
    address = AddrInfo(dst=host, dst_service=port, port_space=cm.RDMA_PS_TCP)
    with endpoint(address) as connection:
        # At least one byte, so that there is memory to register.
        memory = connection.reg_read(len(content) + 1)
        memory.write(content, len(content))
        offers = connection.reg_msgs(OFFER.size)
        answers = connection.reg_msgs(ANSWER.size)
        connection.post_recv(answers)
        connection.connect()

        offer = OFFER.pack(memory.buf, len(content), memory.rkey, crc)
        offers.write(offer, OFFER.size)
        connection.post_send(offers, 0)
        complete(connection.get_send_comp())
        complete(connection.get_recv_comp())
        length, theirs, _ = ANSWER.unpack(answers.read(ANSWER.size, 0))
        connection.disconnect()
    if (length, theirs) != (len(content), crc):
        print("copy.py: the receiver has other bytes than were sent", file=sys.stderr)
        return 1
    print(f"sent {length} bytes, CRC-32 {crc:08x}", flush=True)
    return 0


def main():
    roles = {"receive": receive, "send": send}
    if len(sys.argv) != 5 or sys.argv[1] not in roles:
        print("usage: copy.py receive|send ADDRESS PORT FILE", file=sys.stderr)
        return 1
    try:
        return roles[sys.argv[1]](*sys.argv[2:])
    except PyverbsError as error:
        print(f"copy.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
