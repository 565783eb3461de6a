/*
 * sctp-messages: one association over usrsctp, without DDP. Both ends send COUNT unordered messages, and check
 * those of the other. With UDP-PORT packets are in UDP (RFC 6951), both ends on that port.
 * userspace-sctp/examples/raw_messages.rs does the same over userspace-sctp.
 */
#include "llp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORT = 4791, STREAMS = 16, DDP = 1, MOST = 65536 };

static bool listens, up, over, lost;
static uint32_t adaptation, count, sent, received;
static size_t own_max, other_max;
static uint8_t *seen;

/* Message `index` of the side that listens, or of the other. Its length, and its bytes in `p`. */
static size_t fill(uint8_t *p, bool listener, uint32_t index, size_t max)
{
    size_t len = 1 + ((size_t)index * 977) % max;
    for (size_t i = 0; i < len; i++)
        p[i] = (uint8_t)(31 * listener + 7 * index + index / 256 + 13 * i + i / 256);
    return len;
}

static void check(const struct llp_event *e, const uint8_t *p)
{
    static uint8_t expected[MOST];
    const char *what = 0;
    uint32_t index = e->ppid;
    if (!e->unordered || index >= count || e->sid != index % STREAMS)
        what = "no message of the other end";
    else if (seen[index]++)
        what = "a message that came before";
    else if (fill(expected, !listens, index, other_max) != e->len || memcmp(expected, p, e->len))
        what = "a message that changed on its way";
    if (what) {
        printf("event=error what=\"%s\" len=%zu sid=%u ppid=%u\n", what, e->len, e->sid, e->ppid);
        exit(1);
    }
    received++;
}

static void take(int ms)
{
    static uint8_t buffer[MOST];
    struct llp_event e;
    for (llp_next(&e, buffer, sizeof buffer, ms); e.kind != LLP_NOTHING; llp_next(&e, buffer, sizeof buffer, 0)) {
        up = up || e.kind == LLP_UP;
        if (e.kind == LLP_ADAPTATION)
            adaptation = e.adaptation;
        if (e.kind == LLP_DATA)
            check(&e, buffer);
        lost = e.kind == LLP_LOST;
        over = lost || e.kind == LLP_SHUTDOWN;
        if (over)
            return;
    }
}

static void send_some(void)
{
    static uint8_t message[MOST];
    for (; sent < count; sent++) {
        size_t len = fill(message, listens, sent, own_max);
        int r = llp_send((uint16_t)(sent % STREAMS), sent, false, message, len);
        if (r < 0) {
            printf("event=error what=\"message %u was not taken\"\n", sent);
            exit(1);
        }
        if (r == 0)
            return;
    }
}

int main(int words, char **word)
{
    setvbuf(stdout, 0, _IOLBF, 0);
    if (words != 8 && words != 9) {
        fprintf(stderr, "usage: sctp-messages listen|connect LOCAL REMOTE COUNT LONGEST LONGEST-OF-OTHER "
                        "shutdown|abort|wait [UDP-PORT]\n");
        return 2;
    }
    listens = !strcmp(word[1], "listen");
    count = (uint32_t)strtoul(word[4], 0, 0);
    own_max = strtoul(word[5], 0, 0);
    other_max = strtoul(word[6], 0, 0);
    seen = calloc(count, 1);
    if (!seen || own_max - 1 >= MOST || other_max - 1 >= MOST) {
        fprintf(stderr, "sctp-messages: COUNT is at least 1, and messages have from 1 to %d bytes\n", MOST);
        return 2;
    }
    struct llp_options options = {.local = word[2], .remote = listens ? 0 : word[3], .port = PORT, .adapts = true};
    options.out_streams = options.in_streams = STREAMS;
    options.adaptation = DDP;
    options.fragments = true;
    options.udp = words == 9 ? (uint16_t)strtoul(word[8], 0, 0) : 0;
    llp_open(&options);
    bool ending = false;
    while (!over) {
        take(1);
        if (up && !over)
            send_some();
        if (over || ending || sent < count || received < count || !llp_dry())
            continue;
        ending = true;
        if (!strcmp(word[7], "shutdown"))
            llp_shutdown();
        if (!strcmp(word[7], "abort"))
            break;
    }
    llp_close(!over);
    printf("event=result received=%u adaptation=%u how=%s\n", received, adaptation,
           !over ? "aborts" : lost ? "aborted" : "shutdown");
    return 0;
}
