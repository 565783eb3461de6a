/*
 * The bytes of DDP over SCTP: session control (RFC 5043 section 5, RFC 6581 section 7), DDP headers
 * (RFC 5041 section 4) and RDMAP headers (RFC 5040 section 4). Written from the RFCs alone.
 */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PPID_SEGMENT = 16, PPID_CONTROL = 17, ADAPTATION_DDP = 1 };
enum { MOST_PRIVATE = 512, LEAST_MULPDU = 516, MOST_CHUNK = 65536, SSN_WINDOW = 32768 };
enum { INITIATE = 1, ACCEPT, REJECT, TERMINATE, ENHANCED_INITIATE, ENHANCED_ACCEPT, ENHANCED_REJECT };
enum {
    OP_WRITE,
    OP_READ_REQUEST,
    OP_READ_RESPONSE,
    OP_SEND,
    OP_SEND_INV,
    OP_SEND_SE,
    OP_SEND_SE_INV,
    OP_TERMINATE
};
enum { QN_SEND, QN_READ, QN_TERMINATE, QUEUES };
enum { TAGGED_HEADER = 14, UNTAGGED_HEADER = 18, READ_REQUEST = 28 };

/* A DDP Segment, taken apart. `stag` is the Invalidate STag of an untagged one. */
struct segment {
    bool tagged, last;
    uint8_t ddp_version, rdmap_version, opcode;
    uint32_t stag;
    uint64_t to;
    uint32_t qn, msn, mo;
    const uint8_t *payload;
    size_t len;
};

struct read_request {
    uint32_t sink_stag, size, source_stag;
    uint64_t sink_to, source_to;
};

/* What a Terminate says: layer, error type and error code (RFC 5040 section 4.8). */
struct fault {
    uint8_t layer, etype, code;
};

void put16(uint8_t *p, uint16_t v);
void put32(uint8_t *p, uint32_t v);
void put64(uint8_t *p, uint64_t v);
uint16_t get16(const uint8_t *p);
uint32_t get32(const uint8_t *p);
uint64_t get64(const uint8_t *p);

/* False when the header is cut. */
bool segment_parse(const uint8_t *p, size_t len, struct segment *s);
/* Writes header and payload, returns their length. */
size_t segment_build(uint8_t *p, const struct segment *s);
void read_request_build(uint8_t *p, const struct read_request *r);
void read_request_parse(const uint8_t *p, struct read_request *r);
bool opcode_is_tagged(uint8_t opcode);
bool opcode_invalidates(uint8_t opcode);

/* The first 32 bits of enhanced private data: A, B, IRD, C, D, ORD (RFC 6581 section 9). */
uint32_t depths_build(uint16_t ird, uint16_t ord, uint8_t flags);
uint16_t depths_ird(uint32_t word);
uint16_t depths_ord(uint32_t word);
uint8_t depths_flags(uint32_t word);

/* CRC-32 as zlib has it, so that a test can compute it. */
uint32_t crc32_of(const uint8_t *p, size_t len);
/* Byte `i` of the test data with this seed. */
uint8_t pattern(uint32_t seed, size_t i);

#endif
