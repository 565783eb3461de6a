/* The association over Linux's SCTP sockets. Needs <linux/sctp.h> only, no library. */
#include "llp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sctp.h>

static int s = -1;
static bool dry = true;

static void must(long r, const char *what)
{
    if (r >= 0)
        return;
    printf("event=error what=\"%s: %s\"\n", what, strerror(errno));
    exit(2);
}

static void option(int name, const void *value, socklen_t len, const char *what)
{
    must(setsockopt(s, IPPROTO_SCTP, name, value, len), what);
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
    s = socket(local.ss_family, SOCK_STREAM, IPPROTO_SCTP);
    must(s, "socket");
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
        option(SCTP_REMOTE_UDP_ENCAPS_PORT, &e, sizeof e, "udp");
    }
    const uint16_t events[] = {SCTP_ASSOC_CHANGE, SCTP_ADAPTATION_INDICATION, SCTP_SHUTDOWN_EVENT,
                               SCTP_SENDER_DRY_EVENT};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        struct sctp_event e = {SCTP_FUTURE_ASSOC, events[i], 1};
        option(SCTP_EVENT, &e, sizeof e, "event");
    }
    must(bind(s, (void *)&local, len), "bind");
    if (o->remote) {
        len = address(o->remote, o->port, &remote);
        must(connect(s, (void *)&remote, len), "connect");
        return;
    }
    must(listen(s, 1), "listen");
    printf("event=listening port=%u\n", o->port);
    int l = s;
    s = accept(l, 0, 0);
    must(s, "accept");
    close(l);
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
    case SCTP_SENDER_DRY_EVENT:
        dry = true;
        break;
    }
}

void llp_next(struct llp_event *e, uint8_t *buffer, size_t room, int ms)
{
    struct pollfd p = {.fd = s, .events = POLLIN};
    size_t have = 0;
    memset(e, 0, sizeof *e);
    while (poll(&p, 1, have ? -1 : ms) > 0) {
        char control[256];
        struct iovec io = {buffer + have, room - have};
        struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        ssize_t r = recvmsg(s, &m, 0);
        if (r <= 0) {
            e->kind = r == 0 ? LLP_SHUTDOWN : LLP_LOST;
            return;
        }
        for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
            if (c->cmsg_level != IPPROTO_SCTP || c->cmsg_type != SCTP_RCVINFO)
                continue;
            struct sctp_rcvinfo i;
            memcpy(&i, CMSG_DATA(c), sizeof i);
            e->sid = i.rcv_sid;
            e->ppid = ntohl(i.rcv_ppid);
            e->unordered = i.rcv_flags & SCTP_UNORDERED;
            e->tsn = i.rcv_tsn;
        }
        have += (size_t)r;
        if (!(m.msg_flags & MSG_EOR) && have < room)
            continue;
        if (m.msg_flags & MSG_NOTIFICATION) {
            notification((void *)buffer, e);
        } else {
            e->kind = LLP_DATA;
            e->len = have;
        }
        return;
    }
}

int llp_send(uint16_t sid, uint32_t ppid, bool ordered, const uint8_t *p, size_t len)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct sctp_sndinfo))];
    } control;
    struct iovec io = {(void *)p, len};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    m.msg_control = &control;
    m.msg_controllen = sizeof control;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = IPPROTO_SCTP;
    c->cmsg_type = SCTP_SNDINFO;
    c->cmsg_len = CMSG_LEN(sizeof(struct sctp_sndinfo));
    struct sctp_sndinfo i = {.snd_sid = sid, .snd_ppid = htonl(ppid)};
    i.snd_flags = ordered ? 0 : SCTP_UNORDERED;
    memcpy(CMSG_DATA(c), &i, sizeof i);
    if (sendmsg(s, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    dry = false;
    return 1;
}

/*
 * The kernel tells when its queue becomes empty. A notification that was queued before the last send
 * would be taken for a later one, so callers ask only after a pause in what they send.
 */
bool llp_dry(void)
{
    struct sctp_status status = {0};
    socklen_t len = sizeof status;
    if (!dry)
        return false;
    /* The event may have been waiting since before the last send. */
    return getsockopt(s, IPPROTO_SCTP, SCTP_STATUS, &status, &len) < 0 || !status.sstat_unackdata;
}

unsigned llp_mtu(void)
{
    struct sctp_status status = {0};
    socklen_t len = sizeof status;
    if (getsockopt(s, IPPROTO_SCTP, SCTP_STATUS, &status, &len) < 0)
        return 0;
    return status.sstat_primary.spinfo_mtu;
}

void llp_shutdown(void) { shutdown(s, SHUT_WR); }

void llp_close(bool abort)
{
    struct linger l = {1, 0};
    if (abort)
        setsockopt(s, SOL_SOCKET, SO_LINGER, &l, sizeof l);
    close(s);
}
