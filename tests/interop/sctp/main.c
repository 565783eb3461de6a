/* ddp-sctp-peer: one SCTP association, its DDP Stream Sessions, and the options that say what happens. */
#include "peer.h"
#include "steps.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct options opt;
struct session sessions[MOST_SESSIONS];
unsigned session_count;
unsigned mulpdu;

static bool up, adaptation_known, ended, lost;
static uint32_t adaptation;

long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

void event(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("event=", stdout);
    vprintf(format, list);
    putchar('\n');
    va_end(list);
}

static void usage(const char *problem)
{
    fprintf(stderr, "ddp-sctp-peer: %s\n", problem);
    fprintf(stderr, "usage: ddp-sctp-peer listen|connect --local ADDRESS [--remote ADDRESS] [--port N] ...\n"
                    "       ddp-sctp-peer --list-wrong\nREADME.md has every option.\n");
    exit(2);
}

static void associated(const struct llp_event *e)
{
    unsigned usable = e->in < e->out ? e->in : e->out;
    unsigned mtu = llp_mtu();
    up = true;
    /* IPv6 or IPv4, UDP, common header, DATA header, DDP-SSN, and a SACK with some gaps (section 9). */
    unsigned headers = (strchr(opt.llp.local, ':') ? 40 : 20) + (opt.llp.udp ? 8 : 0) + 12 + 16 + 2 + 32;
    mulpdu = mtu > headers + LEAST_MULPDU ? (mtu - headers) & ~3u : LEAST_MULPDU;
    if (opt.mulpdu)
        mulpdu = opt.mulpdu;
    event("up in=%u out=%u streams=%u mtu=%u mulpdu=%u", e->in, e->out, usable, mtu, mulpdu);
    session_count = usable < MOST_SESSIONS ? usable : MOST_SESSIONS;
}

void pump(int ms)
{
    static uint8_t buffer[1 << 20];
    struct llp_event e;
    llp_next(&e, buffer, sizeof buffer, ms);
    switch (e.kind) {
    case LLP_UP:
        associated(&e);
        break;
    case LLP_ADAPTATION:
        adaptation_known = true;
        adaptation = e.adaptation;
        event("adaptation value=%u", adaptation);
        break;
    case LLP_DATA:
        if (!adaptation_known || adaptation != ADAPTATION_DDP)
            event("ignored ppid=%u", e.ppid);
        else if (e.sid < session_count)
            session_chunk(&sessions[e.sid], &e, buffer);
        else
            event("violation what=stream-beyond-the-pairs sid=%u", e.sid);
        break;
    case LLP_SHUTDOWN:
        ended = true;
        break;
    case LLP_LOST:
        ended = lost = true;
        break;
    case LLP_NOTHING:
        break;
    }
}

static void private_data(const char *text)
{
    for (opt.private_len = 0; text[0] && text[1]; text += 2) {
        char pair[3] = {text[0], text[1], 0};
        if (opt.private_len == MOST_PRIVATE)
            usage("--private takes at most 512 bytes, two hexadecimal digits each");
        opt.private_data[opt.private_len++] = (uint8_t)strtoul(pair, 0, 16);
    }
}

static void buffer_option(const char *text)
{
    unsigned stag, len;
    unsigned long long base;
    char rights[4] = "rw";
    if (opt.buffer_count == MOST_BUFFERS || sscanf(text, "%i:%lli:%i:%3s", (int *)&stag, (long long *)&base,
                                                   (int *)&len, rights) < 3)
        usage("--buffer takes STAG:OFFSET:LENGTH[:RIGHTS], at most 16 times");
    struct buffer *b = &opt.buffers[opt.buffer_count++];
    *b = (struct buffer){.stag = stag, .len = len, .base = base, .valid = true, .bytes = malloc(len + 1u)};
    b->readable = strchr(rights, 'r');
    b->writable = strchr(rights, 'w');
    if (!b->bytes)
        usage("no memory for --buffer");
    for (size_t i = 0; i < len; i++)
        b->bytes[i] = pattern(stag, i);
}

static void place(const char *text, uint32_t *stag, uint64_t *to)
{
    char *end;
    *stag = (uint32_t)strtoul(text, &end, 0);
    *to = *end == ':' ? strtoull(end + 1, 0, 0) : 0;
}

enum {
    LOCAL = 256, REMOTE, PORT, STREAMS, ADAPTATION, UDP, FRAGMENTS, SESSIONS, ROUNDS, SID, ENHANCED, IRD, ORD, FLAGS,
    PRIVATE, REJECTS, DELAY, PENDING_MOST, MULPDU, BUFFER, PEER, SINK, RECEIVES, SEED, DO, WRONG, GAP, TIMEOUT, LINGER, LIST
};

static const struct option names[] = {
    {"local", 1, 0, LOCAL}, {"remote", 1, 0, REMOTE}, {"port", 1, 0, PORT}, {"streams", 1, 0, STREAMS},
    {"adaptation", 1, 0, ADAPTATION}, {"udp", 1, 0, UDP}, {"fragments", 0, 0, FRAGMENTS},
    {"sessions", 1, 0, SESSIONS}, {"rounds", 1, 0, ROUNDS}, {"sid", 1, 0, SID}, {"enhanced", 0, 0, ENHANCED},
    {"ird", 1, 0, IRD}, {"ord", 1, 0, ORD}, {"flags", 1, 0, FLAGS}, {"private", 1, 0, PRIVATE},
    {"reject", 0, 0, REJECTS}, {"accept-delay", 1, 0, DELAY}, {"pending", 1, 0, PENDING_MOST},
    {"mulpdu", 1, 0, MULPDU}, {"buffer", 1, 0, BUFFER}, {"peer", 1, 0, PEER}, {"sink", 1, 0, SINK},
    {"receives", 1, 0, RECEIVES}, {"seed", 1, 0, SEED}, {"do", 1, 0, DO}, {"wrong", 1, 0, WRONG},
    {"gap-timeout", 1, 0, GAP}, {"timeout", 1, 0, TIMEOUT}, {"linger", 1, 0, LINGER},
    {"list-wrong", 0, 0, LIST}, {0, 0, 0, 0},
};

static void option(int name, const char *v)
{
    unsigned n = v ? (unsigned)strtoul(v, 0, 0) : 0;
    const char *colon = v ? strchr(v, ':') : 0;
    switch (name) {
    case LOCAL: opt.llp.local = v; break;
    case REMOTE: opt.llp.remote = v; break;
    case PORT: opt.llp.port = (uint16_t)n; break;
    case STREAMS:
        opt.llp.out_streams = (uint16_t)n;
        opt.llp.in_streams = (uint16_t)(colon ? strtoul(colon + 1, 0, 0) : n);
        break;
    case ADAPTATION:
        opt.llp.adapts = strcmp(v, "none");
        opt.llp.adaptation = n;
        break;
    case UDP: opt.llp.udp = (uint16_t)n; break;
    case FRAGMENTS: opt.llp.fragments = true; break;
    case SESSIONS: opt.sessions = n; break;
    case ROUNDS: opt.rounds = n; break;
    case SID: opt.first_sid = n; break;
    case ENHANCED: opt.enhanced = true; break;
    case IRD: opt.ird = (uint16_t)(n < MOST_READS ? n : MOST_READS); break;
    case ORD: opt.ord = (uint16_t)(n < MOST_READS ? n : MOST_READS); break;
    case FLAGS: opt.flags = (uint8_t)(n & 15); break;
    case PRIVATE: private_data(v); break;
    case REJECTS: opt.rejects = true; break;
    case DELAY: opt.accept_delay = n; break;
    case PENDING_MOST: opt.pending = n; break;
    case MULPDU: opt.mulpdu = n; break;
    case BUFFER: buffer_option(v); break;
    case PEER: place(v, &opt.peer_stag, &opt.peer_to); break;
    case SINK: place(v, &opt.sink_stag, &opt.sink_to); break;
    case RECEIVES:
        opt.receives = n;
        opt.receive_size = colon ? (unsigned)strtoul(colon + 1, 0, 0) : opt.receive_size;
        break;
    case SEED: opt.seed = n; break;
    case DO:
        if (opt.step_count == MOST_STEPS || !step_known(v))
            usage("--do takes a step that README.md names, at most 64 of them");
        opt.steps[opt.step_count++] = v;
        break;
    case WRONG:
        opt.wrong = n;
        if (!wrong_known(n))
            usage("--wrong takes a number that --list-wrong names");
        break;
    case GAP: opt.gap_timeout = n; break;
    case TIMEOUT: opt.timeout = n; break;
    case LINGER: opt.linger = n; break;
    case LIST: wrong_list(); exit(0);
    default: usage("unknown option");
    }
}

static void options(int count, char **words)
{
    int name;
    opt = (struct options){.sessions = 1, .rounds = 1, .ird = 16, .ord = 16, .flags = 7, .pending = 16};
    opt.timeout = 20000;
    opt.gap_timeout = 1000;
    opt.receives = 1000;
    opt.receive_size = 1 << 20;
    opt.llp = (struct llp_options){.port = 4791, .out_streams = 16, .in_streams = 16, .adapts = true};
    opt.llp.adaptation = ADAPTATION_DDP;
    while ((name = getopt_long(count, words, "", names, 0)) != -1)
        option(name, optarg);
    if (optind != count - 1)
        usage("say listen or connect");
    opt.listens = !strcmp(words[optind], "listen");
    if (!opt.llp.local || (!opt.listens && !opt.llp.remote))
        usage("--local is needed, and --remote to connect");
    if (opt.listens)
        opt.llp.remote = 0;
    if (opt.sessions > MOST_SESSIONS || (opt.mulpdu && (opt.mulpdu < 64 || opt.mulpdu > MOST_CHUNK - 64)))
        usage("--sessions is at most 64, --mulpdu from 64 to 65472");
}

/* Starts sessions and next rounds. True when all are over. */
static bool active_done(void)
{
    bool all = true;
    /* Sessions that the side of the INIT begins have even stream identifiers. */
    for (unsigned i = 0; i < opt.sessions; i++) {
        unsigned sid = opt.first_sid + 2 * i;
        struct session *s = sid < session_count ? &sessions[sid] : 0;
        if (!s) {
            event("error what=\"stream %u is beyond the %u pairs\"", sid, session_count);
            exit(2);
        }
        if (s->state == OVER && s->round + 1 < opt.rounds && !strcmp(s->end, "closed")) {
            session_reset(s);
            s->round++;
        }
        if (s->state == FREE)
            session_initiate(s);
        all = all && s->state == OVER;
    }
    return all;
}

static bool ddp_agreed(long start)
{
    if (adaptation_known && adaptation == ADAPTATION_DDP)
        return true;
    if (adaptation_known || now_ms() - start > 1000) {
        event("no-ddp adaptation=%s", adaptation_known ? "other" : "none");
        llp_close(true);
        exit(1);
    }
    return false;
}

int main(int count, char **words)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    options(count, words);
    llp_open(&opt.llp);
    for (unsigned i = 0; i < MOST_SESSIONS; i++) {
        sessions[i].sid = (uint16_t)i;
        session_reset(&sessions[i]);
    }
    long start = now_ms();
    bool finished = false;
    while (!ended && now_ms() - start < (long)opt.timeout) {
        pump(1);
        if (ended || !up || !ddp_agreed(start))
            continue;
        for (unsigned i = 0; i < session_count; i++) {
            session_tick(&sessions[i]);
            steps_run(&sessions[i]);
        }
        if (!opt.listens && !finished && active_done()) {
            /* RFC 5041: with its last stream the association goes. */
            finished = true;
            llp_shutdown();
        }
    }
    for (unsigned i = 0; i < session_count; i++)
        if (sessions[i].state != FREE && sessions[i].state != OVER)
            event("session-end sid=%u how=%s round=%u", i, ended ? "association-ended" : "timeout", sessions[i].round);
    for (unsigned i = 0; i < opt.buffer_count; i++) {
        const struct buffer *b = &opt.buffers[i];
        event("buffer stag=%u valid=%d len=%u crc=%08x", b->stag, b->valid, b->len, crc32_of(b->bytes, b->len));
    }
    event("end how=%s", lost ? "lost" : ended ? "shutdown" : "timeout");
    /* Our SHUTDOWN COMPLETE may be lost. usrsctp goes with this process, and then nobody answers the next SHUTDOWN ACK. */
    usleep(opt.linger * 1000);
    llp_close(!ended);
    return lost || !ended;
}
