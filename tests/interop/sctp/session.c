/* DDP Stream Sessions (RFC 5043 section 6): the order of chunks by DDP-SSN, and which of them are legal. */
#include "peer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void session_reset(struct session *s)
{
    while (s->held) {
        struct chunk *c = s->held;
        s->held = c->next;
        free(c);
    }
    uint16_t sid = s->sid;
    bool used = s->used;
    unsigned round = s->round;
    uint8_t *message = s->message;
    memset(s, 0, sizeof *s);
    s->sid = sid;
    s->used = used;
    s->round = round;
    s->message = message;
    s->ird = opt.ird;
    s->ord = opt.ord;
    rdmap_reset(s);
}

static void over(struct session *s, const char *how)
{
    if (s->state == OVER)
        return;
    s->state = OVER;
    s->end = how;
    event("session-end sid=%u how=%s round=%u", s->sid, how, s->round);
}

/* At most 32767 chunks of a stream are not acknowledged (section 10). */
static void keep_window(struct session *s)
{
    if (llp_dry())
        s->since_dry = 0;
    while (s->since_dry >= SSN_WINDOW - 1 && !llp_dry())
        pump(1);
    if (s->since_dry >= SSN_WINDOW - 1)
        s->since_dry = 0;
    s->since_dry++;
}

void session_raw(struct session *s, uint32_t ppid, bool ordered, const uint8_t *p, size_t len)
{
    int r;
    keep_window(s);
    while ((r = llp_send(s->sid, ppid, ordered, p, len)) == 0)
        pump(1);
    if (r < 0) {
        event("error what=\"send of %zu bytes: %s\"", len, strerror(errno));
        over(s, "send-failed");
    }
}

void session_control(struct session *s, uint16_t function, const uint8_t *private_data, size_t len)
{
    uint8_t p[4 + 2 * MOST_PRIVATE];
    put16(p, s->tx_ssn++);
    put16(p + 2, function);
    if (len)
        memcpy(p + 4, private_data, len);
    session_raw(s, PPID_CONTROL, false, p, 4 + len);
    event("sent-control sid=%u function=%u ssn=%u private-len=%zu", s->sid, function, get16(p), len);
    if (function == TERMINATE)
        s->sent_terminate = true;
}

void session_segment(struct session *s, const uint8_t *p, size_t len)
{
    static uint8_t q[MOST_CHUNK];
    put16(q, s->tx_ssn++);
    memcpy(q + 2, p, len);
    session_raw(s, PPID_SEGMENT, false, q, len + 2);
}

/* Initiate, Accept or Reject with this side's private data, after IRD and ORD where they belong. */
static void start_message(struct session *s, uint16_t function, uint8_t flags)
{
    uint8_t p[4 + MOST_PRIVATE];
    size_t at = 0, len = opt.private_len;
    if (function == ENHANCED_INITIATE || function == ENHANCED_ACCEPT) {
        put32(p, depths_build(s->ird, s->ord, flags));
        at = 4;
    }
    if (at + len > MOST_PRIVATE)
        len = MOST_PRIVATE - at;
    memcpy(p + at, opt.private_data, len);
    session_control(s, function, p, at + len);
}

void session_initiate(struct session *s)
{
    s->active = s->used = true;
    s->enhanced = opt.enhanced;
    s->state = INITIATED;
    if (wrong_at_start(opt.wrong) && !s->wrong_done) {
        s->wrong_done = true;
        wrong_send(s, opt.wrong);
        return;
    }
    start_message(s, s->enhanced ? ENHANCED_INITIATE : INITIATE, opt.flags);
}

void session_violation(struct session *s, const char *what)
{
    event("violation sid=%u what=%s expected-ssn=%u", s->sid, what, s->rx_ssn);
    if (s->sent_terminate) {
        over(s, "violation");
        return;
    }
    s->state = BROKEN;
    s->want_terminate = true;
    s->deadline = now_ms() + 2000;
}

static void negotiate(struct session *s, const uint8_t *private_data)
{
    s->peer_depths = get32(private_data);
    uint16_t ird = depths_ird(s->peer_depths), ord = depths_ord(s->peer_depths);
    if (s->ord > ird)
        s->ord = ird;
    event("depths sid=%u peer-ird=%u peer-ord=%u flags=%u ord=%u", s->sid, ird, ord,
          depths_flags(s->peer_depths), s->ord);
}

static void answer(struct session *s)
{
    uint8_t flags = 0, asked = depths_flags(s->peer_depths);
    if (asked & 8)
        flags = (uint8_t)(8 | ((asked & opt.flags & 7) ? asked & opt.flags & 7 : 1));
    if (opt.rejects) {
        start_message(s, s->enhanced ? ENHANCED_REJECT : REJECT, 0);
        over(s, "rejected");
        return;
    }
    s->state = OPEN;
    if (wrong_at_reply(opt.wrong) && !s->wrong_done) {
        s->wrong_done = true;
        wrong_send(s, opt.wrong);
        return;
    }
    start_message(s, s->enhanced ? ENHANCED_ACCEPT : ACCEPT, flags);
    event("open sid=%u role=passive enhanced=%d", s->sid, s->enhanced);
}

static void requested(struct session *s, uint16_t function, const uint8_t *private_data, size_t len)
{
    s->enhanced = function == ENHANCED_INITIATE;
    if (s->enhanced && len < 4) {
        session_violation(s, "enhanced-without-depths");
        return;
    }
    unsigned undecided = 0;
    for (unsigned i = 0; i < session_count; i++)
        undecided += sessions[i].state == PENDING;
    if (undecided >= opt.pending) {
        /* Section 6.4: not the ULP's decision, so a Terminate and no Reject. */
        session_control(s, TERMINATE, 0, 0);
        over(s, "too-many-pending");
        return;
    }
    s->used = true;
    if (s->enhanced)
        negotiate(s, private_data);
    s->state = PENDING;
    s->deadline = now_ms() + opt.accept_delay;
}

static void control_initiated(struct session *s, uint16_t function, const uint8_t *private_data, size_t len)
{
    if (function == (s->enhanced ? ENHANCED_ACCEPT : ACCEPT)) {
        if (s->enhanced && len < 4) {
            session_violation(s, "enhanced-without-depths");
            return;
        }
        if (s->enhanced)
            negotiate(s, private_data);
        s->state = OPEN;
        event("open sid=%u role=active enhanced=%d", s->sid, s->enhanced);
    } else if (function == REJECT || (s->enhanced && function == ENHANCED_REJECT)) {
        over(s, "rejected");
    } else if (function == TERMINATE) {
        over(s, "refused");
    } else {
        session_violation(s, "control-out-of-state");
    }
}

/* One control message in the order of DDP-SSNs. */
static void control(struct session *s, const uint8_t *p, size_t len)
{
    if (len < 2) {
        session_violation(s, "short-control");
        return;
    }
    uint16_t function = get16(p);
    const uint8_t *private_data = p + 2;
    len -= 2;
    char hex[2 * MOST_PRIVATE + 1] = "";
    for (size_t i = 0; i < len && i < MOST_PRIVATE; i++)
        sprintf(hex + 2 * i, "%02x", private_data[i]);
    event("control sid=%u function=%u ssn=%u private-len=%zu private=%s", s->sid, function,
          (uint16_t)(s->rx_ssn - 1), len, hex);
    if (len > MOST_PRIVATE)
        session_violation(s, "private-data-too-long");
    else if (function < INITIATE || function > ENHANCED_REJECT)
        session_violation(s, "unknown-function");
    else if (function == TERMINATE && len > 0)
        session_violation(s, "terminate-with-private-data");
    else if (s->got_terminate)
        session_violation(s, "after-terminate");
    else if (s->state == FREE && (function == INITIATE || function == ENHANCED_INITIATE))
        requested(s, function, private_data, len);
    else if (s->state == INITIATED)
        control_initiated(s, function, private_data, len);
    else if (s->state == OPEN && function == TERMINATE)
        s->got_terminate = s->want_terminate = true;
    else
        session_violation(s, "control-out-of-state");
}

static void in_order(struct session *s, uint32_t ppid, const uint8_t *p, size_t len)
{
    s->rx_ssn++;
    if (ppid == PPID_CONTROL)
        control(s, p, len);
    else if (s->got_terminate)
        session_violation(s, "after-terminate");
    else if (s->state != OPEN)
        session_violation(s, "segment-out-of-state");
    else
        rdmap_segment(s, p, len);
}

/* Chunks are held in the order of their DDP-SSN. */
static void hold(struct session *s, uint16_t ssn, uint32_t ppid, const uint8_t *p, size_t len)
{
    uint16_t ahead = (uint16_t)(ssn - s->rx_ssn);
    struct chunk **at = &s->held;
    if (s->held_count >= MOST_HELD) {
        session_violation(s, "too-many-held");
        return;
    }
    while (*at && (uint16_t)((*at)->ssn - s->rx_ssn) < ahead)
        at = &(*at)->next;
    if (*at && (*at)->ssn == ssn) {
        session_violation(s, "ssn-twice");
        return;
    }
    struct chunk *c = malloc(sizeof *c + len);
    if (!c)
        abort();
    c->next = *at;
    c->ssn = ssn;
    c->ppid = ppid;
    c->len = len;
    if (len)
        memcpy(c->bytes, p, len);
    *at = c;
    s->held_count++;
}

/* While a request waits for its decision, what follows it waits too. */
static void drain(struct session *s)
{
    while (s->held && s->held->ssn == s->rx_ssn && s->state != PENDING && s->state != BROKEN && s->state != OVER) {
        struct chunk *c = s->held;
        s->held = c->next;
        s->held_count--;
        in_order(s, c->ppid, c->bytes, c->len);
        free(c);
    }
    bool gap = s->held && s->held->ssn != s->rx_ssn;
    if (!gap)
        s->gap_since = 0;
    else if (!s->gap_since)
        s->gap_since = now_ms();
}

void session_chunk(struct session *s, const struct llp_event *e, const uint8_t *p)
{
    bool control = e->ppid == PPID_CONTROL;
    bool terminate = control && e->len == 4 && get16(p + 2) == TERMINATE;
    if (s->state == OVER && !s->active)
        session_reset(s);
    if (s->state == OVER) {
        event("late sid=%u ppid=%u", s->sid, e->ppid);
        return;
    }
    if (s->state == BROKEN) {
        s->got_terminate = s->got_terminate || terminate;
        return;
    }
    if (s->state == FREE && terminate) {
        /* Answered by nothing, lest two ends answer each other without end. */
        event("%s sid=%u what=terminate-without-session", s->used ? "stray" : "violation", s->sid);
        return;
    }
    if (!control && e->ppid != PPID_SEGMENT) {
        session_violation(s, "wrong-ppid");
    } else if (!e->unordered) {
        session_violation(s, "ordered-data");
    } else if (e->len < 2) {
        session_violation(s, "short-chunk");
    } else if ((uint16_t)(get16(p) - s->rx_ssn) >= SSN_WINDOW) {
        session_violation(s, "ssn-outside-window");
    } else {
        hold(s, get16(p), e->ppid, p + 2, e->len - 2);
        if (s->state != BROKEN)
            drain(s);
    }
}

void session_tick(struct session *s)
{
    if (s->state == FREE && !s->held)
        return;
    if (s->gap_since && now_ms() - s->gap_since > opt.gap_timeout) {
        s->gap_since = 0;
        session_violation(s, "ssn-gap");
    }
    if (s->state == PENDING && now_ms() >= s->deadline) {
        answer(s);
        drain(s);
    }
    rdmap_tick(s);
    if (s->want_terminate && !s->sent_terminate && llp_dry()) {
        /* Section 6.6: no earlier control message may be overtaken. */
        session_control(s, TERMINATE, 0, 0);
    }
    if (s->state == OPEN && s->sent_terminate && s->got_terminate && (!s->active || llp_dry()))
        over(s, "closed");
    if (s->state == BROKEN && s->sent_terminate && (s->got_terminate || now_ms() >= s->deadline))
        over(s, "violation");
}
