// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Takes exactly the frames of claimed (protocol, local address, local port) triples to the AF_XDP
 * socket of the queue they came in on; passes every other frame to the kernel, untouched.
 *
 * SCTP in UDP (RFC 6951) goes by the SCTP packet's claim, when it was sent to the one UDP port for it.
 *
 * Only the first fragment of a packet has the port. When it is claimed, the later ones of that
 * packet are taken too; those that come before it pass.
 *
 * Strangers are limited (flood.bpf.h): SYNs and INITs, fragments, and segments and packets of flows that the
 * shard does not know. What is beyond a limit is dropped.
 *
 * Two entry points, because only kernels since 5.18 know frames of several buffers: `steer_frags`
 * (xdp.frags) and `steer` (xdp).
 *
 * No helper that is only for GPL programs is used.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define be16(x) __builtin_bswap16(x)
#else
#define be16(x) (x)
#endif

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value,
				   __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_delete_elem;
static __u64 (*bpf_ktime_get_ns)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static __u64 (*bpf_xdp_get_buff_len)(struct xdp_md *ctx) = (void *)BPF_FUNC_xdp_get_buff_len;

#include "headers.bpf.h"

/* `MAX_QUEUES` and `MAX_DEVICES` in program.rs. */
#define QUEUES 256
#define DEVICES 8

/*
 * The indexes of the members of a bond, set before loading; 0 behind the last. None: all frames are of one
 * device.
 */
volatile const __u32 MEMBERS[DEVICES];

/* The local port of SCTP in UDP, in the host's order, set before loading; 0: there is none. */
volatile const __u16 SCTP_UDP_PORT;

/*
 * How long the later fragments of a packet are taken, in nanoseconds. The reassembly behind the
 * socket waits no longer (FRAGMENT_LIFETIME in rnic-net).
 */
#define FRAGMENT_LIFETIME 10000000000ULL

/* `key` in claim.rs. */
struct claim {
	__u8 protocol;
	__u8 version;
	__be16 port;
	__u8 address[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct claim);
	__type(value, __u32);
} CLAIMS SEC(".maps");

/*
 * Of TCP's claims of a port, one of each IP version: no address is all zeros. The others are in CLAIMS
 * alone. A look into an array is a load, which the kernel puts into the program; one into a hash table
 * is a call that reads, hashes and compares a key.
 */
struct port {
	__be32 v4;
	__be32 v6[4];
};

/* By port, in the host's order. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct port);
} PORTS SEC(".maps");

/* By device and queue: `place`. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, DEVICES * QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} SOCKETS SEC(".maps");

/* What all fragments of a packet have in common (RFC 791 section 3.2, RFC 8200 section 4.5). */
struct packet {
	__u8 protocol;
	__u8 version;
	__u16 zero;
	__be32 id;
	__u8 source[16];
	__u8 destination[16];
};

/*
 * When the claimed first fragment of a packet was taken; bit 0: its flow is known. A flood of them
 * pushes the oldest out.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct packet);
	__type(value, __u64);
} FRAGMENTED SEC(".maps");

/* `REASONS` in program.rs. */
enum reason {
	REDIRECTED,
	REDIRECTED_FRAGMENT,
	PASS_NOT_IP,
	PASS_MULTICAST,
	PASS_VLAN_STACK,
	PASS_FRAGMENT,
	PASS_EXTENSION_HEADER,
	PASS_OTHER_PROTOCOL,
	PASS_MALFORMED,
	PASS_NOT_CLAIMED,
	PASS_NO_SOCKET,
	ICMP_TAKEN,
	DROP_SYN,
	DROP_UNKNOWN_FLOW,
	DROP_FRAGMENT,
	REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} COUNTERS SEC(".maps");

enum part { WHOLE, FIRST_FRAGMENT, LATER_FRAGMENT };

/*
 * What a frame is found to be, as far as it is looked at. It stays in registers: a key for a table is
 * made where one is asked. The processor can't read at once what it has just written in smaller
 * pieces; it waits until all that it wrote before is in the cache, and that is the whole frame, which
 * the kernel copied a moment ago.
 */
struct found {
	/* The IP header: `struct ipv4` or `struct ipv6`, all in the frame. */
	void *ip;
	__u32 version;
	__u32 protocol;
	__u32 part;
	/* Of the packet that it is a part of. */
	__be32 id;
	/* The local one, in the host's order; not of later fragments. */
	__u32 port;
	/* Both, as they are in the frame; not of later fragments. */
	__u32 ports;
	/* It asks for a connection: a SYN without ACK, or an INIT. */
	__u32 asks;
};

/* The transport header of a packet or first fragment: where it is and how long it may be. */
struct transport {
	void *header;
	__u32 length;
	__u8 protocol;
};

/* Where a frame's first buffer is, and whether there may be more. */
struct frame {
	struct xdp_md *ctx;
	void *end;
	int several;
};

/*
 * Has the compiler keep a number in a register as it is: what it infers from other tests than those
 * that are written here the kernel's verifier does not.
 */
#define keep(number) __asm__ volatile("" : "+r"(number))

#include "flood.bpf.h"

/* Whether the frame has so many bytes from `at` on, which is in its first buffer. */
static __always_inline int has(const struct frame *frame, void *at, __u32 bytes)
{
	__u64 here = frame->end - at;

	if (bytes <= here)
		return 1;
	if (!frame->several)
		return 0;
	void *begin = (void *)(long)frame->ctx->data;

	return (__u64)(at - begin) + bytes <= bpf_xdp_get_buff_len(frame->ctx);
}

static __always_inline int is_steered(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_SCTP ||
	       (protocol == IPPROTO_UDP && SCTP_UDP_PORT);
}

/* Fills all but the port. REDIRECTED means: look further. */
static __always_inline enum reason parse_ipv4(const struct frame *frame, void *at,
					      struct found *found, struct transport *transport)
{
	struct ipv4 *ip = at;

	if ((void *)(ip + 1) > frame->end || ip->version_ihl >> 4 != 4)
		return PASS_MALFORMED;
	__u32 header = (ip->version_ihl & 0xf) * 4;
	__u32 total = be16(ip->total_length);

	if (header < sizeof(*ip) || total < header || !has(frame, at, total))
		return PASS_MALFORMED;
	__u32 fragment = be16(ip->fragment) & (IPV4_MORE_FRAGMENTS | IPV4_OFFSET);

	if (fragment) {
		if (!is_steered(ip->protocol))
			return PASS_FRAGMENT;
		found->part = fragment & IPV4_OFFSET ? LATER_FRAGMENT : FIRST_FRAGMENT;
		found->id = ip->id;
	}
	found->ip = ip;
	found->version = 4;
	keep(found->version);
	transport->header = at + header;
	transport->length = total - header;
	transport->protocol = ip->protocol;
	return REDIRECTED;
}

static __always_inline enum reason parse_ipv6(const struct frame *frame, void *at,
					      struct found *found, struct transport *transport)
{
	struct ipv6 *ip = at;

	if ((void *)(ip + 1) > frame->end || ip->version_class >> 4 != 6)
		return PASS_MALFORMED;
	__u32 length = be16(ip->payload_length);

	if (!has(frame, at, sizeof(*ip) + length))
		return PASS_MALFORMED;
	__u8 protocol = ip->next_header;

	transport->header = at + sizeof(*ip);
	transport->length = length;
	found->ip = ip;
	found->version = 6;
	keep(found->version);
	switch (protocol) {
	case EXT_FRAGMENT: {
		struct ipv6_fragment *fragment = transport->header;

		if ((void *)(fragment + 1) > frame->end || length < sizeof(*fragment))
			return PASS_MALFORMED;
		protocol = fragment->next_header;
		if (!is_steered(protocol))
			return PASS_FRAGMENT;
		__u32 offset = be16(fragment->offset_more) & IPV6_OFFSET;
		__u32 more = be16(fragment->offset_more) & IPV6_MORE_FRAGMENTS;

		/* A fragment that is the whole packet stands for itself (RFC 6946). */
		if (offset || more) {
			found->part = offset ? LATER_FRAGMENT : FIRST_FRAGMENT;
			found->id = fragment->id;
		}
		transport->header += sizeof(*fragment);
		transport->length -= sizeof(*fragment);
		break;
	}
	case EXT_HOP_BY_HOP:
	case EXT_ROUTING:
	case EXT_ESP:
	case EXT_AH:
	case EXT_DESTINATION:
	case EXT_MOBILITY:
	case EXT_HIP:
	case EXT_SHIM6:
	case EXT_TEST_1:
	case EXT_TEST_2:
		return PASS_EXTENSION_HEADER;
	}
	transport->protocol = protocol;
	return REDIRECTED;
}

/* Goes on to what is in a UDP packet, if that is to be SCTP. */
static __always_inline enum reason open_udp(const struct frame *frame, struct transport *transport)
{
	struct udp *udp = transport->header;

	if ((void *)(udp + 1) > frame->end || transport->length < sizeof(*udp))
		return PASS_MALFORMED;
	if (be16(udp->destination) != SCTP_UDP_PORT)
		return PASS_OTHER_PROTOCOL;
	transport->header = udp + 1;
	transport->length -= sizeof(*udp);
	return REDIRECTED;
}

/* A packet has one chunk at least, of which the type is looked at. */
static __always_inline enum reason parse_sctp(const struct frame *frame,
					      const struct transport *transport,
					      struct found *found)
{
	struct sctp *sctp = transport->header;
	__u8 *chunk = (void *)(sctp + 1);

	if ((void *)(chunk + 1) > frame->end || transport->length <= sizeof(*sctp))
		return PASS_MALFORMED;
	found->port = be16(sctp->destination);
	found->ports = *(__u32 *)sctp;
	found->asks = *chunk == SCTP_INIT;
	return REDIRECTED;
}

/* What to do with the frame, and what it is. REDIRECTED means: if it is claimed. */
static __always_inline enum reason parse(const struct frame *frame, struct found *found)
{
	void *at = (void *)(long)frame->ctx->data;
	struct ethhdr *eth = at;

	if ((void *)(eth + 1) > frame->end)
		return PASS_MALFORMED;
	if (eth->h_dest[0] & 1)
		return PASS_MULTICAST;
	__be16 proto = eth->h_proto;
	__u32 link = sizeof(*eth);

	if (proto == be16(ETH_P_8021AD))
		return PASS_VLAN_STACK;
	if (proto == be16(ETH_P_8021Q)) {
		struct vlan *vlan = at + link;

		if ((void *)(vlan + 1) > frame->end)
			return PASS_MALFORMED;
		proto = vlan->proto;
		link += sizeof(*vlan);
		if (proto == be16(ETH_P_8021Q) || proto == be16(ETH_P_8021AD))
			return PASS_VLAN_STACK;
	}

	struct transport transport;
	enum reason reason;

	if (proto == be16(ETH_P_IP))
		reason = parse_ipv4(frame, at + link, found, &transport);
	else if (proto == be16(ETH_P_IPV6))
		reason = parse_ipv6(frame, at + link, found, &transport);
	else
		return PASS_NOT_IP;
	if (reason != REDIRECTED)
		return reason;
	if (!is_steered(transport.protocol))
		return PASS_OTHER_PROTOCOL;
	found->protocol = transport.protocol;
	keep(found->protocol);
	if (found->part == LATER_FRAGMENT)
		return REDIRECTED;
	if (transport.protocol == IPPROTO_UDP) {
		reason = open_udp(frame, &transport);
		if (reason != REDIRECTED)
			return reason;
	}
	if (transport.protocol != IPPROTO_TCP)
		return parse_sctp(frame, &transport, found);

	struct tcp *tcp = transport.header;

	if ((void *)(tcp + 1) > frame->end || transport.length < sizeof(*tcp))
		return PASS_MALFORMED;
	__u32 header = (tcp->data_offset >> 4) * 4;

	if (header < sizeof(*tcp) || header > transport.length)
		return PASS_MALFORMED;
	found->port = be16(tcp->destination);
	found->ports = *(__u32 *)tcp;
	found->asks = (tcp->flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	return REDIRECTED;
}

/* Whether the table of all claims has what was found. */
static __always_inline int in_claims(const struct found *found)
{
	struct claim claim = {
		/* What is in UDP is SCTP. */
		.protocol = found->protocol == IPPROTO_UDP ? IPPROTO_SCTP : found->protocol,
		.version = found->version,
		.port = be16(found->port),
	};

	if (found->version == 4)
		__builtin_memcpy(claim.address, &((struct ipv4 *)found->ip)->destination, 4);
	else
		__builtin_memcpy(claim.address, ((struct ipv6 *)found->ip)->destination, 16);
	return bpf_map_lookup_elem(&CLAIMS, &claim) != 0;
}

/* The same, by a shorter way for most. */
static __always_inline int is_claimed(const struct found *found)
{
	if (found->protocol != IPPROTO_TCP)
		return in_claims(found);
	__u32 number = found->port;
	struct port *port = bpf_map_lookup_elem(&PORTS, &number);

	if (port && found->version == 4) {
		__be32 to = ((struct ipv4 *)found->ip)->destination;

		if (to && to == port->v4)
			return 1;
	} else if (port) {
		__be32 *to = ((struct ipv6 *)found->ip)->destination;

		if (to[3] == port->v6[3] && to[2] == port->v6[2] && to[1] == port->v6[1] &&
		    to[0] == port->v6[0] && (to[0] | to[1] | to[2] | to[3]))
			return 1;
	}
	return in_claims(found);
}

/* Whether this fragment is of a claimed flow. A first fragment decides for the later ones. */
static __always_inline enum reason fragment(enum reason reason, const struct found *found)
{
	__u64 now = bpf_ktime_get_ns();
	struct packet packet = {
		.protocol = found->protocol,
		.version = found->version,
		.id = found->id,
	};

	if (found->version == 4) {
		struct ipv4 *ip = found->ip;

		__builtin_memcpy(packet.source, &ip->source, sizeof(ip->source));
		__builtin_memcpy(packet.destination, &ip->destination, sizeof(ip->destination));
	} else {
		struct ipv6 *ip = found->ip;

		__builtin_memcpy(packet.source, ip->source, sizeof(ip->source));
		__builtin_memcpy(packet.destination, ip->destination, sizeof(ip->destination));
	}
	if (found->part == LATER_FRAGMENT) {
		__u64 *taken = bpf_map_lookup_elem(&FRAGMENTED, &packet);

		if (taken && now - *taken < FRAGMENT_LIFETIME)
			return *taken & 1 ? REDIRECTED_FRAGMENT : limit_fragment(now);
		/* The kernel has no use for what is left of a packet that was dropped here. */
		return was_dropped(hash(found, found->id, PACKET_HASH), now) ? DROP_FRAGMENT
									      : PASS_FRAGMENT;
	}
	if (reason == REDIRECTED && in_claims(found)) {
		__u64 known = is_known(hash(found, found->ports, FLOW_HASH));
		__u64 taken = (now & ~1ULL) | known;

		if (!known && limit_fragment(now) == DROP_FRAGMENT) {
			comes_again(hash(found, found->id, PACKET_HASH), now, 0);
			return DROP_FRAGMENT;
		}
		bpf_map_update_elem(&FRAGMENTED, &packet, &taken, BPF_ANY);
		return REDIRECTED_FRAGMENT;
	}
	/* An earlier packet of the same identification may have been ours. */
	bpf_map_delete_elem(&FRAGMENTED, &packet);
	return PASS_FRAGMENT;
}

/* Where SOCKETS has the socket of the queue that a frame came by: beyond its end when there is none. */
static __always_inline __u32 place(const struct xdp_md *ctx)
{
	__u32 queue = ctx->rx_queue_index;

	if (queue >= QUEUES)
		return DEVICES * QUEUES;
	if (!MEMBERS[0])
		return queue;
#pragma unroll
	for (__u32 device = 0; device < DEVICES; device++)
		if (MEMBERS[device] == ctx->ingress_ifindex)
			return device * QUEUES + queue;
	return DEVICES * QUEUES;
}

static __always_inline int decide(struct xdp_md *ctx, int several)
{
	struct frame frame = { ctx, (void *)(long)ctx->data_end, several };
	struct found found = {};
	int action = XDP_PASS;
	__u32 reason = parse(&frame, &found);

	if (found.part != WHOLE)
		reason = fragment(reason, &found);
	else if (reason == REDIRECTED)
		reason = is_claimed(&found) ? limit(&found) : PASS_NOT_CLAIMED;
	if (reason >= DROP_SYN)
		action = XDP_DROP;
	if (reason == REDIRECTED || reason == REDIRECTED_FRAGMENT) {
		action = bpf_redirect_map(&SOCKETS, place(ctx), XDP_PASS);
		if (action != XDP_REDIRECT)
			reason = PASS_NO_SOCKET;
	}
	__u64 *counter = bpf_map_lookup_elem(&COUNTERS, &reason);

	if (counter)
		*counter += 1;
	return action;
}

SEC("xdp.frags")
int steer_frags(struct xdp_md *ctx)
{
	return decide(ctx, 1);
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	return decide(ctx, 0);
}

#include "icmp.bpf.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";
