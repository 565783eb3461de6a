// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Takes exactly the frames of claimed (protocol, local address, local port) triples to the AF_XDP
 * socket of the queue they came in on; passes every other frame to the kernel, untouched.
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
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static __u64 (*bpf_xdp_get_buff_len)(struct xdp_md *ctx) = (void *)BPF_FUNC_xdp_get_buff_len;

/* linux/if_vlan.h, linux/ip.h, linux/ipv6.h and linux/tcp.h, by octets: bit-fields need no care. */

struct vlan {
	__be16 tci;
	__be16 proto;
};

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__u8 source[4];
	__u8 destination[4];
};

struct ipv6 {
	__u8 version_class;
	__u8 class_flow[3];
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__u8 source[16];
	__u8 destination[16];
};

struct tcp {
	__be16 source;
	__be16 destination;
	__be32 sequence;
	__be32 acknowledgement;
	__u8 data_offset;
	__u8 flags;
	__be16 window;
	__be16 checksum;
	__be16 urgent;
};

#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_OFFSET 0x1fff

/* The next headers that IANA lists as extension headers, but for Fragment. */
#define EXT_HOP_BY_HOP 0
#define EXT_ROUTING 43
#define EXT_FRAGMENT 44
#define EXT_ESP 50
#define EXT_AH 51
#define EXT_DESTINATION 60
#define EXT_MOBILITY 135
#define EXT_HIP 139
#define EXT_SHIM6 140
#define EXT_TEST_1 253
#define EXT_TEST_2 254

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

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} SOCKETS SEC(".maps");

/* `REASONS` in program.rs. */
enum reason {
	REDIRECTED,
	PASS_NOT_IP,
	PASS_MULTICAST,
	PASS_VLAN_STACK,
	PASS_FRAGMENT,
	PASS_EXTENSION_HEADER,
	PASS_OTHER_PROTOCOL,
	PASS_MALFORMED,
	PASS_NOT_CLAIMED,
	PASS_NO_SOCKET,
	REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, REASONS);
	__type(key, __u32);
	__type(value, __u64);
} COUNTERS SEC(".maps");

/* The transport header of an unfragmented packet: where it is and how long it may be. */
struct transport {
	void *header;
	__u32 length;
};

/* Fills the claim's version, address and protocol. REDIRECTED means: look further. */
static __always_inline enum reason parse_ipv4(void *at, void *end, __u32 left, struct claim *claim,
					      struct transport *transport)
{
	struct ipv4 *ip = at;

	if ((void *)(ip + 1) > end || ip->version_ihl >> 4 != 4)
		return PASS_MALFORMED;
	__u32 header = (ip->version_ihl & 0xf) * 4;
	__u32 total = be16(ip->total_length);

	if (header < sizeof(*ip) || total < header || total > left)
		return PASS_MALFORMED;
	if (be16(ip->fragment) & (IPV4_MORE_FRAGMENTS | IPV4_OFFSET))
		return PASS_FRAGMENT;
	claim->protocol = ip->protocol;
	claim->version = 4;
	__builtin_memcpy(claim->address, ip->destination, sizeof(ip->destination));
	transport->header = at + header;
	transport->length = total - header;
	return REDIRECTED;
}

static __always_inline enum reason parse_ipv6(void *at, void *end, __u32 left, struct claim *claim,
					      struct transport *transport)
{
	struct ipv6 *ip = at;

	if ((void *)(ip + 1) > end || ip->version_class >> 4 != 6)
		return PASS_MALFORMED;
	__u32 length = be16(ip->payload_length);

	if (sizeof(*ip) + length > left)
		return PASS_MALFORMED;
	switch (ip->next_header) {
	case EXT_FRAGMENT:
		return PASS_FRAGMENT;
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
	claim->protocol = ip->next_header;
	claim->version = 6;
	__builtin_memcpy(claim->address, ip->destination, sizeof(ip->destination));
	transport->header = at + sizeof(*ip);
	transport->length = length;
	return REDIRECTED;
}

/* What to do with the frame; fills the claim. REDIRECTED means: if it is claimed. */
static __always_inline enum reason parse(struct xdp_md *ctx, __u32 frame_length,
					 struct claim *claim)
{
	void *at = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = at;

	if ((void *)(eth + 1) > end)
		return PASS_MALFORMED;
	if (eth->h_dest[0] & 1)
		return PASS_MULTICAST;
	__be16 proto = eth->h_proto;
	__u32 link = sizeof(*eth);

	if (proto == be16(ETH_P_8021AD))
		return PASS_VLAN_STACK;
	if (proto == be16(ETH_P_8021Q)) {
		struct vlan *vlan = at + link;

		if ((void *)(vlan + 1) > end)
			return PASS_MALFORMED;
		proto = vlan->proto;
		link += sizeof(*vlan);
		if (proto == be16(ETH_P_8021Q) || proto == be16(ETH_P_8021AD))
			return PASS_VLAN_STACK;
	}

	struct transport transport;
	enum reason reason;

	if (proto == be16(ETH_P_IP))
		reason = parse_ipv4(at + link, end, frame_length - link, claim, &transport);
	else if (proto == be16(ETH_P_IPV6))
		reason = parse_ipv6(at + link, end, frame_length - link, claim, &transport);
	else
		return PASS_NOT_IP;
	if (reason != REDIRECTED)
		return reason;
	if (claim->protocol != IPPROTO_TCP)
		return PASS_OTHER_PROTOCOL;

	struct tcp *tcp = transport.header;

	if ((void *)(tcp + 1) > end || transport.length < sizeof(*tcp))
		return PASS_MALFORMED;
	__u32 header = (tcp->data_offset >> 4) * 4;

	if (header < sizeof(*tcp) || header > transport.length)
		return PASS_MALFORMED;
	claim->port = tcp->destination;
	return REDIRECTED;
}

static __always_inline int decide(struct xdp_md *ctx, __u32 frame_length)
{
	struct claim claim = {};
	int action = XDP_PASS;
	__u32 reason = parse(ctx, frame_length, &claim);

	if (reason == REDIRECTED && !bpf_map_lookup_elem(&CLAIMS, &claim))
		reason = PASS_NOT_CLAIMED;
	if (reason == REDIRECTED) {
		action = bpf_redirect_map(&SOCKETS, ctx->rx_queue_index, XDP_PASS);
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
	return decide(ctx, bpf_xdp_get_buff_len(ctx));
}

SEC("xdp")
int steer(struct xdp_md *ctx)
{
	return decide(ctx, ctx->data_end - ctx->data);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
