/*
 * One SCTP association, as DDP needs it (RFC 5043 sections 8 to 11). llp_kernel.c is over the kernel's
 * sockets, llp_usrsctp.c over usrsctp; a program links one of them. Nothing here knows of DDP.
 */
#ifndef LLP_H
#define LLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct llp_options {
    const char *local, *remote; /* addresses; remote is 0 for a listener */
    uint16_t port;              /* the listener's */
    uint16_t out_streams, in_streams;
    bool adapts; /* false: no Adaptation Indication is set */
    uint32_t adaptation;
    uint16_t udp; /* RFC 6951: both ends' UDP port, 0 for none */
    bool fragments;
};

enum llp_kind { LLP_NOTHING, LLP_UP, LLP_ADAPTATION, LLP_DATA, LLP_SHUTDOWN, LLP_LOST };

struct llp_event {
    enum llp_kind kind;
    uint16_t in, out;    /* LLP_UP: streams */
    uint32_t adaptation; /* LLP_ADAPTATION */
    uint16_t sid;        /* LLP_DATA, with what follows */
    uint32_t ppid;
    bool unordered;
    uint32_t tsn;
    size_t len;
};

/* Listens and takes one association, or connects. Exits with a message when that fails. */
void llp_open(const struct llp_options *o);
/* The next event within `ms`; a whole message's bytes go to `buffer`. */
void llp_next(struct llp_event *e, uint8_t *buffer, size_t room, int ms);
/* 1: taken, 0: no space now, -1: error (errno). */
int llp_send(uint16_t sid, uint32_t ppid, bool ordered, const uint8_t *p, size_t len);
/* Whether the peer acknowledged all that was sent. */
bool llp_dry(void);
/* The path's MTU, or 0. */
unsigned llp_mtu(void);
void llp_shutdown(void);
/* ABORT if it still is there. */
void llp_close(bool abort);

#endif
