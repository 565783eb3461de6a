/* The association over usrsctp: raw sockets, or UDP (RFC 6951). One process of it in a network namespace. */
#include "llp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <usrsctp.h>

static struct socket *s;

static void must(long r, const char *what)
{
    if (r >= 0)
        return;
    printf("event=error what=\"%s: %s\"\n", what, strerror(errno));
    exit(2);
}

static void option(int name, const void *value, socklen_t len, const char *what)
{
    must(usrsctp_setsockopt(s, IPPROTO_SCTP, name, value, len), what);
}

static socklen_t address(const char *text, uint16_t port, struct sockaddr_storage *a)
{
    struct sockaddr_in *v4 = (void *)a;
    struct sockaddr_in6 *v6 = (void *)a;
    memset(a, 0, sizeof *a);
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        return sizeof *v4;
    }
    errno = EINVAL;
    must(inet_pton(AF_INET6, text, &v6->sin6_addr) == 1 ? 0 : -1, text);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    return sizeof *v6;
}

void llp_open(const struct llp_options *o)
{
    struct sockaddr_storage local, remote;
    socklen_t len = address(o->local, o->remote ? 0 : o->port, &local);
    int one = 1, off = !o->fragments;
    usrsctp_init(o->udp, 0, 0);
    s = usrsctp_socket(local.ss_family, SOCK_STREAM, IPPROTO_SCTP, 0, 0, 0, 0);
    must(s ? 0 : -1, "socket");
    struct sctp_setadaptation adaptation = {o->adaptation};
    if (o->adapts)
        option(SCTP_ADAPTATION_LAYER, &adaptation, sizeof adaptation, "adaptation");
    option(SCTP_NODELAY, &one, sizeof one, "nodelay");
    option(SCTP_DISABLE_FRAGMENTS, &off, sizeof off, "fragments");
    struct sctp_initmsg init = {o->out_streams, o->in_streams, 0, 0};
    option(SCTP_INITMSG, &init, sizeof init, "streams");
    option(SCTP_RECVRCVINFO, &one, sizeof one, "rcvinfo");
    if (o->udp) {
        struct sctp_udpencaps e = {.sue_port = htons(o->udp)};
        e.sue_address.ss_family = local.ss_family;
        option(SCTP_REMOTE_UDP_ENCAPS_PORT, &e, sizeof e, "udp");
    }
    const uint16_t events[] = {SCTP_ASSOC_CHANGE, SCTP_ADAPTATION_INDICATION, SCTP_SHUTDOWN_EVENT};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct sctp_event e = {SCTP_FUTURE_ASSOC, events[i], 1};
        option(SCTP_EVENT, &e, sizeof e, "event");
    }
    must(usrsctp_bind(s, (void *)&local, len), "bind");
    if (o->remote) {
        len = address(o->remote, o->port, &remote);
        must(usrsctp_connect(s, (void *)&remote, len), "connect");
    } else {
        must(usrsctp_listen(s, 1), "listen");
        printf("event=listening port=%u\n", o->port);
        struct socket *l = s;
        s = usrsctp_accept(l, 0, 0);
        must(s ? 0 : -1, "accept");
        usrsctp_close(l);
    }
    must(usrsctp_set_non_blocking(s, 1), "non-blocking");
}

static void notification(const union sctp_notification *n, struct llp_event *e)
{
    switch (n->sn_header.sn_type) {
    case SCTP_ASSOC_CHANGE:
        e->kind = n->sn_assoc_change.sac_state == SCTP_COMM_UP ? LLP_UP : LLP_LOST;
        if (n->sn_assoc_change.sac_state == SCTP_SHUTDOWN_COMP)
            e->kind = LLP_SHUTDOWN;
        e->in = n->sn_assoc_change.sac_inbound_streams;
        e->out = n->sn_assoc_change.sac_outbound_streams;
        break;
    case SCTP_ADAPTATION_INDICATION:
        e->kind = LLP_ADAPTATION;
        e->adaptation = n->sn_adaptation_event.sai_adaptation_ind;
        break;
    case SCTP_SHUTDOWN_EVENT:
        e->kind = LLP_SHUTDOWN;
        break;
    }
}

void llp_next(struct llp_event *e, uint8_t *buffer, size_t room, int ms)
{
    const struct timespec pause = {0, 500 * 1000};
    size_t have = 0;
    memset(e, 0, sizeof *e);
    /* usrsctp has no descriptor to wait for. */
    for (long left = 2L * ms; left >= 0;) {
        struct sctp_rcvinfo i = {0};
        socklen_t size = sizeof i;
        unsigned type = 0;
        int flags = 0;
        ssize_t r = usrsctp_recvv(s, buffer + have, room - have, 0, 0, &i, &size, &type, &flags);
        if (r < 0 && (errno == EWOULDBLOCK || errno == EAGAIN)) {
            left -= have ? 0 : 1;
            nanosleep(&pause, 0);
            continue;
        }
        if (r <= 0) {
            e->kind = r == 0 ? LLP_SHUTDOWN : LLP_LOST;
            return;
        }
        have += (size_t)r;
        if (!(flags & MSG_EOR) && have < room)
            continue;
        if (flags & MSG_NOTIFICATION) {
            notification((void *)buffer, e);
            return;
        }
        e->kind = LLP_DATA;
        e->len = have;
        e->sid = i.rcv_sid;
        e->ppid = ntohl(i.rcv_ppid);
        e->unordered = i.rcv_flags & SCTP_UNORDERED;
        e->tsn = i.rcv_tsn;
        return;
    }
}

int llp_send(uint16_t sid, uint32_t ppid, bool ordered, const uint8_t *p, size_t len)
{
    struct sctp_sndinfo i = {.snd_sid = sid, .snd_ppid = htonl(ppid)};
    i.snd_flags = ordered ? 0 : SCTP_UNORDERED;
    if (usrsctp_sendv(s, p, len, 0, 0, &i, sizeof i, SCTP_SENDV_SNDINFO, 0) < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    return 1;
}

static bool status(struct sctp_status *st)
{
    socklen_t len = sizeof *st;
    memset(st, 0, sizeof *st);
    return usrsctp_getsockopt(s, IPPROTO_SCTP, SCTP_STATUS, st, &len) == 0;
}

bool llp_dry(void)
{
    struct sctp_status st;
    return !status(&st) || (st.sstat_unackdata == 0 && st.sstat_penddata == 0);
}

unsigned llp_mtu(void)
{
    struct sctp_status st;
    return status(&st) ? st.sstat_primary.spinfo_mtu : 0;
}

void llp_shutdown(void) { usrsctp_shutdown(s, SHUT_WR); }

void llp_close(bool abort)
{
    struct linger l = {1, 0};
    if (abort)
        usrsctp_setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    usrsctp_close(s);
    for (int i = 0; i < 200 && usrsctp_finish() != 0; i++)
        usleep(10000);
}
