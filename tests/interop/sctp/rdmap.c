/* DDP and RDMAP of one stream: what is placed, what is answered, and which error ends it (RFC 5040, 5041). */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

void rdmap_reset(struct session *s)
{
    for (int q = 0; q < QUEUES; q++)
        s->tx_msn[q] = s->rx_msn[q] = 1;
    s->receives = opt.receives;
    if (!s->message)
        s->message = malloc(opt.receive_size + 1);
    if (!s->message)
        abort();
}

struct buffer *buffer_find(uint32_t stag)
{
    for (unsigned i = 0; i < opt.buffer_count; i++)
        if (opt.buffers[i].stag == stag && opt.buffers[i].valid)
            return &opt.buffers[i];
    return 0;
}

/* Remembers the error, with the header of the segment at fault. It is sent by the next tick. */
static void fail(struct session *s, const struct segment *g, const uint8_t *p, size_t len, struct fault f)
{
    if (s->fault_due)
        return;
    s->fault_due = true;
    s->fault = f;
    s->fault_bits = 0;
    s->fault_header_len = 0;
    if (!g)
        return;
    /* M and D: the segment's length and its DDP header. R: the Read Request, for errors of RDMAP. */
    size_t header = g->tagged ? TAGGED_HEADER : UNTAGGED_HEADER;
    put16(s->fault_header, (uint16_t)len);
    memcpy(s->fault_header + 2, p, header);
    s->fault_header_len = 2 + header;
    s->fault_bits = 6;
    if (f.layer == 0 && g->opcode == OP_READ_REQUEST && g->len == READ_REQUEST) {
        memcpy(s->fault_header + s->fault_header_len, g->payload, READ_REQUEST);
        s->fault_header_len += READ_REQUEST;
        s->fault_bits = 7;
    }
}

/* The layer decides the codes: DDP for placement (RFC 5041 section 7), RDMAP for Reads (RFC 5040 4.8). */
static bool access(const struct buffer *b, uint64_t to, uint64_t len, bool write, uint8_t layer, struct fault *f)
{
    *f = (struct fault){layer, 1, 0};
    if (!b)
        return false;
    f->code = layer == 0 ? 4 : 3;
    if (to + len < to)
        return false;
    f->code = 1;
    if (to < b->base || to - b->base > b->len || len > b->len - (to - b->base))
        return false;
    *f = (struct fault){0, 1, 2};
    return write ? b->writable : b->readable;
}

static void read_response(struct session *s, const struct segment *g, const uint8_t *p, size_t len)
{
    struct read_out *r = &s->reads[0];
    struct buffer *b = buffer_find(g->stag);
    if (s->read_count == 0 || g->stag != r->stag) {
        fail(s, g, p, len, (struct fault){0, 2, 6});
        return;
    }
    bool whole = r->got + g->len == r->size;
    if (g->to != r->to + r->got || r->got + g->len > r->size || g->last != whole) {
        fail(s, g, p, len, (struct fault){1, 1, 1});
        return;
    }
    memcpy(b->bytes + (g->to - b->base), g->payload, g->len);
    r->got += (uint32_t)g->len;
    if (!g->last)
        return;
    event("read-done sid=%u stag=%u to=%llu len=%u crc=%08x", s->sid, r->stag, (unsigned long long)r->to, r->size,
          crc32_of(b->bytes + (r->to - b->base), r->size));
    s->read_count--;
    memmove(s->reads, s->reads + 1, s->read_count * sizeof *s->reads);
}

static void write_in(struct session *s, const struct segment *g, const uint8_t *p, size_t len)
{
    struct buffer *b = buffer_find(g->stag);
    struct fault f;
    /* A Write of no bytes is not checked (RFC 5041 section 5.2). */
    if (g->len && !access(b, g->to, g->len, true, 1, &f)) {
        fail(s, g, p, len, f);
        return;
    }
    if (!s->tagged_open) {
        s->tagged_stag = g->stag;
        s->tagged_start = g->to;
    }
    if (g->len)
        memcpy(b->bytes + (g->to - b->base), g->payload, g->len);
    s->tagged_open = !g->last;
    if (!g->last)
        return;
    size_t size = (size_t)(g->to + g->len - s->tagged_start);
    bool same = b && s->tagged_stag == g->stag && s->tagged_start >= b->base;
    s->writes_got++;
    event("written sid=%u stag=%u to=%llu len=%zu crc=%08x", s->sid, g->stag,
          (unsigned long long)s->tagged_start, size,
          same && size ? crc32_of(b->bytes + (s->tagged_start - b->base), size) : 0);
}

static void send_done(struct session *s, const struct segment *g, const uint8_t *p, size_t len)
{
    if (opcode_invalidates(g->opcode)) {
        struct buffer *b = buffer_find(g->stag);
        if (!b) {
            fail(s, g, p, len, (struct fault){0, 1, 9});
            return;
        }
        b->valid = false;
        event("invalidated sid=%u stag=%u", s->sid, g->stag);
    }
    s->sends_got++;
    s->receives--;
    event("received sid=%u opcode=%u msn=%u len=%zu crc=%08x", s->sid, g->opcode, g->msn, s->message_len,
          crc32_of(s->message, s->message_len));
}

static void request_in(struct session *s, const struct segment *g, const uint8_t *p, size_t len)
{
    struct read_request r;
    struct fault f;
    if (g->len != READ_REQUEST || !g->last) {
        fail(s, g, p, len, (struct fault){0, 2, 0xff});
        return;
    }
    read_request_parse(g->payload, &r);
    if (r.size && !access(buffer_find(r.source_stag), r.source_to, r.size, false, 0, &f)) {
        fail(s, g, p, len, f);
        return;
    }
    s->asked[s->asked_count++] = r;
    event("read-request sid=%u stag=%u to=%llu len=%u", s->sid, r.source_stag, (unsigned long long)r.source_to,
          r.size);
}

static void terminate_in(struct session *s, const struct segment *g)
{
    if (g->len < 4) {
        event("terminate-in sid=%u short=%zu", s->sid, g->len);
        return;
    }
    event("terminate-in sid=%u layer=%u etype=%u code=%u bits=%u len=%zu", s->sid, g->payload[0] >> 4,
          g->payload[0] & 15, g->payload[1], g->payload[2] >> 5, g->len);
}

/* QN, MSN, MO and the length of an untagged segment, before it is placed. */
static bool untagged_sound(struct session *s, const struct segment *g, struct fault *f)
{
    *f = (struct fault){1, 2, 1};
    if (g->qn >= QUEUES)
        return false;
    f->code = 3;
    if (g->msn != s->rx_msn[g->qn])
        return false;
    f->code = 2;
    if (g->qn == QN_SEND && s->receives == 0)
        return false;
    if (g->qn == QN_READ && s->asked_count >= s->ird)
        return false;
    f->code = 4;
    if (g->mo != (g->qn == QN_SEND ? s->message_len : 0))
        return false;
    f->code = 5;
    return g->qn != QN_SEND || g->mo + g->len <= opt.receive_size;
}

static bool opcode_fits(const struct segment *g)
{
    if (g->opcode > OP_TERMINATE || g->tagged != opcode_is_tagged(g->opcode))
        return false;
    if (g->tagged)
        return true;
    if (g->opcode == OP_READ_REQUEST)
        return g->qn == QN_READ;
    return g->opcode == OP_TERMINATE ? g->qn == QN_TERMINATE : g->qn == QN_SEND;
}

void rdmap_segment(struct session *s, const uint8_t *p, size_t len)
{
    struct segment g;
    struct fault f;
    if (s->fault_due)
        return;
    if (!segment_parse(p, len, &g)) {
        session_violation(s, "short-ddp-header");
    } else if (g.ddp_version != 1) {
        fail(s, &g, p, len, g.tagged ? (struct fault){1, 1, 4} : (struct fault){1, 2, 6});
    } else if (!g.tagged && !untagged_sound(s, &g, &f)) {
        fail(s, &g, p, len, f);
    } else if (g.rdmap_version != 1) {
        fail(s, &g, p, len, (struct fault){0, 2, 5});
    } else if (!opcode_fits(&g)) {
        fail(s, &g, p, len, (struct fault){0, 2, 6});
    } else if (g.tagged && s->tagged_open && g.opcode != s->tagged_opcode) {
        fail(s, &g, p, len, (struct fault){0, 2, 6});
    } else if (g.opcode == OP_WRITE) {
        s->tagged_opcode = g.opcode;
        write_in(s, &g, p, len);
    } else if (g.opcode == OP_READ_RESPONSE) {
        read_response(s, &g, p, len);
    } else {
        if (g.last)
            s->rx_msn[g.qn]++;
        if (g.opcode == OP_READ_REQUEST) {
            request_in(s, &g, p, len);
        } else if (g.opcode == OP_TERMINATE) {
            terminate_in(s, &g);
        } else {
            memcpy(s->message + g.mo, g.payload, g.len);
            s->message_len += g.len;
            if (g.last) {
                send_done(s, &g, p, len);
                s->message_len = 0;
            }
        }
    }
}

static void transmit(struct session *s, struct segment *g, const uint8_t *p, size_t len)
{
    static uint8_t out[MOST_CHUNK];
    size_t room = mulpdu - (g->tagged ? TAGGED_HEADER : UNTAGGED_HEADER), at = 0;
    g->ddp_version = g->rdmap_version = 1;
    do {
        size_t part = len - at < room ? len - at : room;
        struct segment one = *g;
        one.payload = p + at;
        one.len = part;
        one.last = at + part == len;
        one.to += at;
        one.mo += (uint32_t)at;
        session_segment(s, out, segment_build(out, &one));
        at += part;
    } while (at < len && s->state != OVER);
}

void rdmap_tagged(struct session *s, uint8_t opcode, uint32_t stag, uint64_t to, const uint8_t *p, size_t len)
{
    struct segment g = {.tagged = true, .opcode = opcode, .stag = stag, .to = to};
    transmit(s, &g, p, len);
}

static void untagged(struct session *s, uint32_t qn, uint8_t opcode, uint32_t stag, const uint8_t *p, size_t len)
{
    struct segment g = {.opcode = opcode, .stag = stag, .qn = qn, .msn = s->tx_msn[qn]++};
    transmit(s, &g, p, len);
}

void rdmap_send(struct session *s, uint8_t opcode, uint32_t invalidate, const uint8_t *p, size_t len)
{
    untagged(s, QN_SEND, opcode, invalidate, p, len);
}

/* False while as many Reads are out as the peer answers at once. */
bool rdmap_read(struct session *s, const struct read_request *r)
{
    uint8_t p[READ_REQUEST];
    if (s->read_count >= s->ord)
        return false;
    s->reads[s->read_count++] = (struct read_out){r->sink_stag, r->size, 0, r->sink_to};
    read_request_build(p, r);
    untagged(s, QN_READ, OP_READ_REQUEST, 0, p, sizeof p);
    return true;
}

void rdmap_terminate(struct session *s, struct fault f)
{
    uint8_t p[4 + sizeof s->fault_header] = {(uint8_t)(f.layer << 4 | f.etype), f.code};
    p[2] = (uint8_t)(s->fault_bits << 5);
    memcpy(p + 4, s->fault_header, s->fault_header_len);
    untagged(s, QN_TERMINATE, OP_TERMINATE, 0, p, 4 + s->fault_header_len);
    event("sent-terminate sid=%u layer=%u etype=%u code=%u", s->sid, f.layer, f.etype, f.code);
    s->want_terminate = true;
}

void rdmap_tick(struct session *s)
{
    if (s->state != OPEN || s->sent_terminate)
        return;
    while (s->asked_count && s->state == OPEN) {
        struct read_request r = s->asked[0];
        struct buffer *b = buffer_find(r.source_stag);
        if (r.size && !b)
            break; /* invalidated since: the requester is told by the end of the session */
        rdmap_tagged(s, OP_READ_RESPONSE, r.sink_stag, r.sink_to, b ? b->bytes + (r.source_to - b->base) : 0,
                     r.size);
        s->asked_count--;
        memmove(s->asked, s->asked + 1, s->asked_count * sizeof *s->asked);
        s->served++;
        event("read-served sid=%u len=%u", s->sid, r.size);
    }
    if (s->fault_due && !s->want_terminate)
        rdmap_terminate(s, s->fault);
}
