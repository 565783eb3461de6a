/* What the parts of the peer share: options, buffers, sessions. One event a line goes to standard output. */
#ifndef PEER_H
#define PEER_H

#include "llp.h"
#include "wire.h"

enum { MOST_SESSIONS = 64, MOST_BUFFERS = 16, MOST_STEPS = 64, MOST_READS = 128, MOST_HELD = 4096 };

struct buffer {
    uint32_t stag, len;
    uint64_t base;
    bool readable, writable, valid;
    uint8_t *bytes;
};

struct options {
    struct llp_options llp;
    bool listens, enhanced, rejects;
    unsigned sessions, rounds, first_sid, wrong, pending, accept_delay, mulpdu, timeout, gap_timeout, linger;
    unsigned receives, receive_size, seed;
    uint16_t ird, ord;
    uint8_t flags;
    uint32_t peer_stag, sink_stag;
    uint64_t peer_to, sink_to;
    size_t private_len;
    uint8_t private_data[MOST_PRIVATE];
    struct buffer buffers[MOST_BUFFERS];
    unsigned buffer_count;
    const char *steps[MOST_STEPS];
    unsigned step_count;
};

/* A chunk whose DDP-SSN is ahead, held until its predecessors came. */
struct chunk {
    struct chunk *next;
    uint16_t ssn;
    uint32_t ppid;
    size_t len;
    uint8_t bytes[];
};

enum state { FREE, INITIATED, PENDING, OPEN, BROKEN, OVER };

struct read_out {
    uint32_t stag, size, got;
    uint64_t to;
};

struct session {
    uint16_t sid;
    enum state state;
    bool active, enhanced, used;
    uint16_t tx_ssn, rx_ssn;
    struct chunk *held;
    unsigned held_count, since_dry, round;
    long gap_since, deadline;
    bool want_terminate, sent_terminate, got_terminate;
    const char *end;
    uint16_t ird, ord;
    uint32_t peer_depths;
    /* RDMAP. MSNs are those of the next message. */
    uint32_t tx_msn[QUEUES], rx_msn[QUEUES];
    unsigned receives, sends_got, writes_got, served;
    uint8_t *message;
    size_t message_len;
    bool tagged_open;
    uint8_t tagged_opcode;
    uint32_t tagged_stag;
    uint64_t tagged_start;
    struct read_request asked[MOST_READS]; /* to be answered */
    unsigned asked_count;
    struct read_out reads[MOST_READS]; /* to be answered by the peer, oldest first */
    unsigned read_count;
    bool fault_due;
    struct fault fault;
    uint8_t fault_header[2 + UNTAGGED_HEADER + READ_REQUEST];
    size_t fault_header_len;
    uint8_t fault_bits;
    /* What is done: the next step, and since when it waits. */
    unsigned step;
    long step_since;
    bool wrong_done;
};

extern struct options opt;
extern struct session sessions[MOST_SESSIONS];
extern unsigned session_count;
extern unsigned mulpdu; /* the largest DDP Segment */

long now_ms(void);
/* Takes in what arrives within `ms`. Sends nothing. */
void pump(int ms);
__attribute__((format(printf, 1, 2))) void event(const char *format, ...);

/* session.c */
void session_reset(struct session *s);
void session_initiate(struct session *s);
void session_control(struct session *s, uint16_t function, const uint8_t *private_data, size_t len);
void session_segment(struct session *s, const uint8_t *p, size_t len);
void session_raw(struct session *s, uint32_t ppid, bool ordered, const uint8_t *p, size_t len);
void session_chunk(struct session *s, const struct llp_event *e, const uint8_t *p);
void session_violation(struct session *s, const char *what);
/* Sends what is due, and looks at the timers. */
void session_tick(struct session *s);

/* rdmap.c */
void rdmap_reset(struct session *s);
void rdmap_segment(struct session *s, const uint8_t *p, size_t len);
void rdmap_send(struct session *s, uint8_t opcode, uint32_t invalidate, const uint8_t *p, size_t len);
void rdmap_tagged(struct session *s, uint8_t opcode, uint32_t stag, uint64_t to, const uint8_t *p, size_t len);
bool rdmap_read(struct session *s, const struct read_request *r);
void rdmap_terminate(struct session *s, struct fault f);
void rdmap_tick(struct session *s);
struct buffer *buffer_find(uint32_t stag);

/* wrong.c: number 0 is none */
bool wrong_at_start(unsigned number);
bool wrong_at_reply(unsigned number);
bool wrong_known(unsigned number);
void wrong_send(struct session *s, unsigned number);
void wrong_list(void);

#endif
