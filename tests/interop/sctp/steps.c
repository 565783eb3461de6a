/* What a session does once it is open: the --do options, one after another. */
#include "peer.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t payload[1 << 24];

static const uint8_t *fill(struct session *s, size_t len)
{
    uint32_t seed = opt.seed + s->sid * 64 + s->step;
    if (len > sizeof payload) {
        event("error what=\"a step of %zu bytes; the most is %zu\"", len, sizeof payload);
        exit(2);
    }
    for (size_t i = 0; i < len; i++)
        payload[i] = pattern(seed, i);
    return payload;
}

static void sent(struct session *s, const char *what, const uint8_t *p, size_t len)
{
    event("sent sid=%u op=%s len=%zu crc=%08x", s->sid, what, len, crc32_of(p, len));
}

/* The `index`th number of NAME:A:B:C, or `otherwise`. */
static unsigned long long number(const char *step, int index, unsigned long long otherwise)
{
    for (; index >= 0 && step; index--) {
        step = strchr(step, ':');
        step = step ? step + 1 : 0;
    }
    return step && *step ? strtoull(step, 0, 0) : otherwise;
}

static bool is(const char *step, const char *name)
{
    size_t len = strlen(name);
    return !strncmp(step, name, len) && (step[len] == 0 || step[len] == ':');
}

bool step_known(const char *step)
{
    static const char *const names[] = {"write", "send", "send-se", "send-inv", "send-se-inv", "read", "recv",
                                        "written", "served", "reads", "sleep", "terminate", "close", "hold"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(step, names[i]))
            return true;
    return false;
}

static bool sends(struct session *s, const char *step)
{
    static const struct {
        const char *name;
        uint8_t opcode;
    } kinds[] = {{"send", OP_SEND}, {"send-se", OP_SEND_SE}, {"send-inv", OP_SEND_INV}, {"send-se-inv", OP_SEND_SE_INV}};
    size_t len = (size_t)number(step, 0, 0);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!is(step, kinds[i].name))
            continue;
        bool inv = opcode_invalidates(kinds[i].opcode);
        const uint8_t *p = fill(s, len);
        rdmap_send(s, kinds[i].opcode, inv ? (uint32_t)number(step, 1, opt.peer_stag) : 0, p, len);
        sent(s, kinds[i].name, p, len);
        return true;
    }
    return false;
}

static bool reads(struct session *s, const char *step)
{
    struct read_request r = {
        .size = (uint32_t)number(step, 0, 0),
        .source_stag = (uint32_t)number(step, 1, opt.peer_stag),
        .source_to = number(step, 2, opt.peer_to),
        .sink_stag = (uint32_t)number(step, 3, opt.sink_stag),
        .sink_to = number(step, 4, opt.sink_to),
    };
    struct buffer *b = buffer_find(r.sink_stag);
    if (!b || r.sink_to < b->base || r.sink_to - b->base > b->len || r.size > b->len - (r.sink_to - b->base)) {
        event("error what=\"read into STag %u: no such --buffer, or too short\"", r.sink_stag);
        exit(2);
    }
    return rdmap_read(s, &r);
}

/* True when the step is done. */
static bool done(struct session *s, const char *step)
{
    if (is(step, "write")) {
        size_t len = (size_t)number(step, 0, 0);
        const uint8_t *p = fill(s, len);
        rdmap_tagged(s, OP_WRITE, (uint32_t)number(step, 1, opt.peer_stag), number(step, 2, opt.peer_to), p, len);
        sent(s, "write", p, len);
    } else if (is(step, "read")) {
        return reads(s, step);
    } else if (is(step, "recv")) {
        return s->sends_got >= number(step, 0, 1);
    } else if (is(step, "written")) {
        return s->writes_got >= number(step, 0, 1);
    } else if (is(step, "served")) {
        return s->served >= number(step, 0, 1);
    } else if (is(step, "reads")) {
        return s->read_count == 0;
    } else if (is(step, "sleep")) {
        return now_ms() - s->step_since >= (long)number(step, 0, 0);
    } else if (is(step, "terminate")) {
        rdmap_terminate(s, (struct fault){(uint8_t)number(step, 0, 0), (uint8_t)number(step, 1, 2),
                                          (uint8_t)number(step, 2, 255)});
    } else if (is(step, "close")) {
        if (s->read_count)
            return false;
        s->want_terminate = true;
    } else if (is(step, "hold")) {
        return false;
    } else {
        sends(s, step);
    }
    return true;
}

void steps_run(struct session *s)
{
    if (s->state != OPEN || s->want_terminate || s->sent_terminate || s->fault_due)
        return;
    if (opt.wrong && !s->wrong_done && !wrong_at_start(opt.wrong) && !wrong_at_reply(opt.wrong) &&
        s->step == opt.step_count) {
        s->wrong_done = true;
        wrong_send(s, opt.wrong);
        return;
    }
    /* After its steps the active side ends the session. After wrong input the peer has to. */
    const char *step = s->step < opt.step_count ? opt.steps[s->step] : s->active && !opt.wrong ? "close" : "hold";
    if (!s->step_since)
        s->step_since = now_ms();
    if (!done(s, step))
        return;
    s->step_since = 0;
    s->step++;
}
