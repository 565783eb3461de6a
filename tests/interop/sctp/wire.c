#include "wire.h"

#include <string.h>

void put16(uint8_t *p, uint16_t v)
{
    p[0] = (uint8_t)(v >> 8);
    p[1] = (uint8_t)v;
}

void put32(uint8_t *p, uint32_t v)
{
    put16(p, (uint16_t)(v >> 16));
    put16(p + 2, (uint16_t)v);
}

void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)(v >> 32));
    put32(p + 4, (uint32_t)v);
}

uint16_t get16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }
uint32_t get32(const uint8_t *p) { return (uint32_t)get16(p) << 16 | get16(p + 2); }
uint64_t get64(const uint8_t *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }

bool segment_parse(const uint8_t *p, size_t len, struct segment *s)
{
    memset(s, 0, sizeof *s);
    if (len < 2)
        return false;
    s->tagged = p[0] & 0x80;
    s->last = p[0] & 0x40;
    s->ddp_version = p[0] & 3;
    s->rdmap_version = p[1] >> 6;
    s->opcode = p[1] & 15;
    size_t header = s->tagged ? TAGGED_HEADER : UNTAGGED_HEADER;
    if (len < header)
        return false;
    s->stag = get32(p + 2);
    if (s->tagged) {
        s->to = get64(p + 6);
    } else {
        s->qn = get32(p + 6);
        s->msn = get32(p + 10);
        s->mo = get32(p + 14);
    }
    s->payload = p + header;
    s->len = len - header;
    return true;
}

size_t segment_build(uint8_t *p, const struct segment *s)
{
    size_t header = s->tagged ? TAGGED_HEADER : UNTAGGED_HEADER;
    p[0] = (uint8_t)((s->tagged ? 0x80 : 0) | (s->last ? 0x40 : 0) | s->ddp_version);
    p[1] = (uint8_t)(s->rdmap_version << 6 | s->opcode);
    put32(p + 2, s->stag);
    if (s->tagged) {
        put64(p + 6, s->to);
    } else {
        put32(p + 6, s->qn);
        put32(p + 10, s->msn);
        put32(p + 14, s->mo);
    }
    if (s->len)
        memcpy(p + header, s->payload, s->len);
    return header + s->len;
}

void read_request_build(uint8_t *p, const struct read_request *r)
{
    put32(p, r->sink_stag);
    put64(p + 4, r->sink_to);
    put32(p + 12, r->size);
    put32(p + 16, r->source_stag);
    put64(p + 20, r->source_to);
}

void read_request_parse(const uint8_t *p, struct read_request *r)
{
    r->sink_stag = get32(p);
    r->sink_to = get64(p + 4);
    r->size = get32(p + 12);
    r->source_stag = get32(p + 16);
    r->source_to = get64(p + 20);
}

bool opcode_is_tagged(uint8_t opcode) { return opcode == OP_WRITE || opcode == OP_READ_RESPONSE; }
bool opcode_invalidates(uint8_t opcode) { return opcode == OP_SEND_INV || opcode == OP_SEND_SE_INV; }

/* Flags are A, B, C, D from bit 3 down. A, B stand before IRD, C, D before ORD, 14 bits each. */
uint32_t depths_build(uint16_t ird, uint16_t ord, uint8_t flags)
{
    return (uint32_t)(flags >> 2) << 30 | (uint32_t)(ird & 0x3fff) << 16 | (uint32_t)(flags & 3) << 14 |
           (ord & 0x3fff);
}

uint16_t depths_ird(uint32_t word) { return word >> 16 & 0x3fff; }
uint16_t depths_ord(uint32_t word) { return word & 0x3fff; }
uint8_t depths_flags(uint32_t word) { return (uint8_t)((word >> 30) << 2 | (word >> 14 & 3)); }

uint32_t crc32_of(const uint8_t *p, size_t len)
{
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < len; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
    return ~crc;
}

uint8_t pattern(uint32_t seed, size_t i) { return (uint8_t)(seed * 31 + i * 7 + (i >> 8)); }
