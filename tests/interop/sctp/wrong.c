/* Wrong inputs by number. README.md has the same table; --list-wrong prints it for tests. */
#include "peer.h"

#include <stdio.h>
#include <string.h>

enum where { START, REPLY, LATER };

static const struct {
    unsigned number;
    enum where where;
    const char *expect, *what;
} table[] = {
    {1, START, "violation", "a DDP Segment before any Initiate"},
    {2, START, "violation", "Initiate with 513 bytes of private data"},
    {3, START, "violation", "Initiate with DDP-SSN 1, and never 0"},
    {4, START, "violation", "Initiate as ordered DATA"},
    {5, START, "violation", "a control chunk of three bytes"},
    {6, START, "violation", "Enhanced Initiate with two bytes of private data"},
    {7, START, "violation", "Accept without a session"},
    {8, START, "violation", "Terminate without a session"},
    {9, START, "violation", "unknown function code 9 first"},
    {10, START, "violation", "PPID 0 first"},
    {11, LATER, "violation", "PPID 18"},
    {12, LATER, "violation", "PPID 16 in little-endian order"},
    {13, LATER, "violation", "a segment chunk of one byte"},
    {14, LATER, "violation", "a segment chunk with nothing after its DDP-SSN"},
    {15, LATER, "violation", "a DDP header that is cut"},
    {16, LATER, "violation", "a DDP-SSN that was used"},
    {17, LATER, "violation", "a DDP-SSN 32768 ahead"},
    {18, LATER, "violation", "a DDP-SSN five ahead, and nothing between"},
    {19, LATER, "violation", "a segment as ordered DATA"},
    {20, LATER, "violation", "a second Initiate"},
    {21, LATER, "violation", "Accept within a session"},
    {22, LATER, "violation", "Reject within a session"},
    {23, LATER, "violation", "function code 255 within a session"},
    {24, LATER, "violation", "Terminate with private data"},
    {25, LATER, "ignored", "a segment after one's own Terminate"},
    {26, LATER, "ignored", "a second Terminate"},
    {27, LATER, "1/1/0", "Write to an unknown STag"},
    {28, LATER, "1/1/1", "Write before the buffer's first byte"},
    {29, LATER, "1/1/3", "Write whose tagged offset wraps"},
    {30, LATER, "1/1/4", "tagged segment of DDP version 2"},
    {31, LATER, "1/2/6", "untagged segment of DDP version 0"},
    {32, LATER, "0/2/5", "Send of RDMAP version 2"},
    {33, LATER, "0/2/6", "untagged segment with opcode 12"},
    {34, LATER, "1/2/1", "queue number 7"},
    {35, LATER, "1/2/3", "an MSN five ahead"},
    {36, LATER, "1/2/4", "a message offset that leaves a hole"},
    {37, LATER, "1/2/5", "a Send longer than the receive (peer: --receives 4:1000)"},
    {38, LATER, "1/2/2", "a Send without a receive (peer: --receives 0:1000)"},
    {39, LATER, "0/1/0", "Read Request of an unknown STag"},
    {40, LATER, "0/1/1", "Read Request out of bounds"},
    {41, LATER, "0/1/2", "Read Request without the right (peer: STag 3 is w)"},
    {42, LATER, "0/1/2", "Write without the right (peer: STag 4 is r)"},
    {43, LATER, "1/2/2", "more Read Requests than the IRD (peer: --ird 0)"},
    {44, LATER, "0/2/6", "Read Response that was not asked for"},
    {45, LATER, "0/2/255", "Read Request of 27 bytes"},
    {46, LATER, "0/1/9", "Send with Invalidate of an unknown STag"},
    {47, LATER, "0/2/6", "the opcode of a Write in an untagged segment"},
    {48, LATER, "0/2/6", "the opcode of a Send in a tagged segment"},
    {49, LATER, "0/2/6", "a Read Request on the queue of Sends"},
    {50, REPLY, "violation", "Accept and Enhanced Accept exchanged"},
    {51, REPLY, "violation", "Accept with 513 bytes of private data"},
    {52, REPLY, "violation", "Accept with DDP-SSN 1, and never 0"},
    {53, REPLY, "violation", "Initiate as the answer to an Initiate"},
    {54, REPLY, "violation", "a segment before the Accept"},
};

enum { ROWS = sizeof table / sizeof *table };

static bool is_at(unsigned number, enum where where)
{
    return number >= 1 && number <= ROWS && table[number - 1].where == where;
}

bool wrong_at_start(unsigned number) { return is_at(number, START); }
bool wrong_at_reply(unsigned number) { return is_at(number, REPLY); }
bool wrong_known(unsigned number) { return number <= ROWS; }

void wrong_list(void)
{
    static const char *const names[] = {"start", "reply", "later"};
    for (unsigned i = 0; i < ROWS; i++)
        printf("| %u | %s | %s | %s |\n", table[i].number, names[table[i].where], table[i].what, table[i].expect);
}

static const uint8_t filler[2 * MOST_PRIVATE];

/* A chunk with any DDP-SSN; what follows keeps its numbers. */
static void numbered(struct session *s, uint16_t ssn, uint32_t ppid, bool ordered, const uint8_t *p, size_t len)
{
    uint8_t q[2 * MOST_PRIVATE + 2];
    put16(q, ssn);
    memcpy(q + 2, p, len);
    session_raw(s, ppid, ordered, q, len + 2);
}

static void segment(struct session *s, struct segment g, size_t len)
{
    uint8_t p[UNTAGGED_HEADER + sizeof filler];
    g.last = true;
    g.payload = g.payload ? g.payload : filler;
    g.len = len;
    session_segment(s, p, segment_build(p, &g));
}

static size_t good_send(struct session *s, uint8_t *p)
{
    struct segment g = {.last = true, .ddp_version = 1, .rdmap_version = 1, .opcode = OP_SEND};
    g.msn = s->tx_msn[QN_SEND]++;
    g.payload = filler;
    g.len = 8;
    return segment_build(p, &g);
}

static void control_at(struct session *s, uint16_t ssn, uint16_t function)
{
    uint8_t p[2];
    put16(p, function);
    numbered(s, ssn, PPID_CONTROL, false, p, sizeof p);
}

static void at_start(struct session *s, unsigned number)
{
    uint8_t p[64], initiate[2] = {0, INITIATE};
    switch (number) {
    case 1:
        session_segment(s, p, good_send(s, p));
        break;
    case 2:
        session_control(s, INITIATE, filler, MOST_PRIVATE + 1);
        break;
    case 3:
        control_at(s, 1, INITIATE);
        break;
    case 4:
        numbered(s, s->tx_ssn++, PPID_CONTROL, true, initiate, sizeof initiate);
        break;
    case 5:
        numbered(s, s->tx_ssn++, PPID_CONTROL, false, initiate, 1);
        break;
    case 6:
        session_control(s, ENHANCED_INITIATE, filler, 2);
        break;
    case 7:
        session_control(s, ACCEPT, 0, 0);
        break;
    case 8:
        session_control(s, TERMINATE, 0, 0);
        break;
    case 9:
        session_control(s, 9, 0, 0);
        break;
    case 10:
        numbered(s, s->tx_ssn++, 0, false, initiate, sizeof initiate);
        break;
    }
}

static void at_reply(struct session *s, unsigned number)
{
    uint8_t p[64];
    switch (number) {
    case 50:
        session_control(s, s->enhanced ? ACCEPT : ENHANCED_ACCEPT, filler, 4);
        break;
    case 51:
        session_control(s, s->enhanced ? ENHANCED_ACCEPT : ACCEPT, filler, MOST_PRIVATE + 1);
        break;
    case 52:
        control_at(s, 1, s->enhanced ? ENHANCED_ACCEPT : ACCEPT);
        break;
    case 53:
        session_control(s, s->enhanced ? ENHANCED_INITIATE : INITIATE, filler, 4);
        break;
    case 54:
        session_segment(s, p, good_send(s, p));
        break;
    }
}

/* The stream's order and its control messages. */
static void chunk(struct session *s, unsigned number)
{
    uint8_t p[64];
    size_t len = good_send(s, p);
    switch (number) {
    case 11:
    case 12:
        numbered(s, s->tx_ssn++, number == 11 ? 18 : 0x10000000, false, p, len);
        break;
    case 13:
        session_raw(s, PPID_SEGMENT, false, filler, 1);
        break;
    case 14:
        session_segment(s, p, 0);
        break;
    case 15:
        session_segment(s, p, 10);
        break;
    case 16:
        numbered(s, (uint16_t)(s->tx_ssn - 1), PPID_SEGMENT, false, p, len);
        break;
    case 17:
        numbered(s, (uint16_t)(s->tx_ssn + SSN_WINDOW), PPID_SEGMENT, false, p, len);
        break;
    case 18:
        numbered(s, (uint16_t)(s->tx_ssn + 5), PPID_SEGMENT, false, p, len);
        break;
    case 19:
        numbered(s, s->tx_ssn++, PPID_SEGMENT, true, p, len);
        break;
    case 20:
    case 21:
    case 22:
        session_control(s, (uint16_t)(number == 20 ? INITIATE : number == 21 ? ACCEPT : REJECT), 0, 0);
        break;
    case 23:
        session_control(s, 255, 0, 0);
        break;
    case 24:
        session_control(s, TERMINATE, filler, 4);
        break;
    case 25:
        session_control(s, TERMINATE, 0, 0);
        session_segment(s, p, len);
        break;
    case 26:
        session_control(s, TERMINATE, 0, 0);
        session_control(s, TERMINATE, 0, 0);
        break;
    }
}

/* DDP and RDMAP. */
static void header(struct session *s, unsigned number)
{
    uint8_t request[READ_REQUEST];
    struct segment g = {.ddp_version = 1, .rdmap_version = 1, .opcode = OP_SEND, .msn = s->tx_msn[QN_SEND]};
    struct segment w = {.tagged = true, .ddp_version = 1, .rdmap_version = 1, .opcode = OP_WRITE};
    struct read_request r = {.sink_stag = opt.sink_stag, .sink_to = opt.sink_to, .size = 16};
    size_t len = 16;
    bool tagged = false, read = false;
    w.stag = r.source_stag = opt.peer_stag;
    w.to = r.source_to = opt.peer_to;
    switch (number) {
    case 27: tagged = true, w.stag = 0xdeadbe01; break;
    case 28: tagged = true, w.to = opt.peer_to - 8; break;
    case 29: tagged = true, w.to = UINT64_MAX - 7; break;
    case 30: tagged = true, w.ddp_version = 2; break;
    case 31: g.ddp_version = 0; break;
    case 32: g.rdmap_version = 2; break;
    case 33: g.opcode = 12; break;
    case 34: g.qn = 7; break;
    case 35: g.msn += 5; break;
    case 36: g.mo = 100; break;
    case 37: len = 1001; break;
    case 38: break;
    case 39: read = true, r.source_stag = 0xdeadbe01; break;
    case 40: read = true, r.size = 1 << 30; break;
    case 41: read = true, r.source_stag = 3, r.source_to = 0; break;
    case 42: tagged = true, w.stag = 4, w.to = 0; break;
    case 43: read = true; break;
    case 44: tagged = true, w.opcode = OP_READ_RESPONSE; break;
    case 45: read = true, len = READ_REQUEST - 1; break;
    case 46: g.opcode = OP_SEND_INV, g.stag = 0xdeadbe01; break;
    case 47: g.opcode = OP_WRITE; break;
    case 48: tagged = true, w.opcode = OP_SEND; break;
    case 49: g.opcode = OP_READ_REQUEST; break;
    }
    if (tagged) {
        segment(s, w, len);
    } else if (read) {
        read_request_build(request, &r);
        g.opcode = OP_READ_REQUEST;
        g.qn = QN_READ;
        g.msn = s->tx_msn[QN_READ];
        g.payload = request;
        segment(s, g, number == 45 ? len : READ_REQUEST);
    } else {
        segment(s, g, len);
    }
}

void wrong_send(struct session *s, unsigned number)
{
    event("wrong sid=%u number=%u what=\"%s\"", s->sid, number, table[number - 1].what);
    if (wrong_at_start(number))
        at_start(s, number);
    else if (wrong_at_reply(number))
        at_reply(s, number);
    else if (number <= 26)
        chunk(s, number);
    else
        header(s, number);
}
