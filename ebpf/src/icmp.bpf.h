/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Filters of raw ICMP and ICMPv6 sockets: they get the errors that quote a TCP segment or SCTP packet (in UDP,
 * too) from a claimed address and port, and nothing else. The kernel has all ICMP as well, as ever.
 *
 * A part of steer.bpf.c, whose table of claims it looks at.
 */

static long (*bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to,
				  __u32 length) = (void *)BPF_FUNC_skb_load_bytes;

struct icmp {
	__u8 type;
	__u8 code;
	__be16 checksum;
	__be32 rest;
};

#define ICMP_UNREACHABLE 3
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETER_PROBLEM 12

#define ICMPV6_UNREACHABLE 1
#define ICMPV6_PARAMETER_PROBLEM 4

/* What a filter says of a message: all of it, or none. */
#define TAKE 0xffff
#define LEAVE 0

/* Whether a quoted packet of this protocol, which begins at `at`, is from a claimed port. Fills the claim's. */
static __always_inline int quoted(struct __sk_buff *skb, __u32 at, __u8 protocol,
				  struct claim *claim)
{
	if (protocol == IPPROTO_UDP) {
		__be16 source;

		if (bpf_skb_load_bytes(skb, at, &source, sizeof(source)) ||
		    be16(source) != SCTP_UDP_PORT)
			return LEAVE;
		at += sizeof(struct udp);
		protocol = IPPROTO_SCTP;
	}
	claim->protocol = protocol;
	if (bpf_skb_load_bytes(skb, at, &claim->port, sizeof(claim->port)))
		return LEAVE;
	if (!bpf_map_lookup_elem(&CLAIMS, claim))
		return LEAVE;
	__u32 reason = ICMP_TAKEN;
	__u64 *counter = bpf_map_lookup_elem(&COUNTERS, &reason);

	if (counter)
		*counter += 1;
	return TAKE;
}

/* A raw socket's IPv4 message begins with its IP header. */
SEC("socket/icmp")
int icmp(struct __sk_buff *skb)
{
	struct claim claim = {};
	struct icmp error;
	struct ipv4 ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)))
		return LEAVE;
	__u32 at = (ip.version_ihl & 0xf) * 4;

	if (bpf_skb_load_bytes(skb, at, &error, sizeof(error)))
		return LEAVE;
	if (error.type != ICMP_UNREACHABLE && error.type != ICMP_TIME_EXCEEDED &&
	    error.type != ICMP_PARAMETER_PROBLEM)
		return LEAVE;
	at += sizeof(error);
	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return LEAVE;
	if (ip.version_ihl >> 4 != 4 || !is_steered(ip.protocol) ||
	    be16(ip.fragment) & IPV4_OFFSET)
		return LEAVE;
	claim.version = 4;
	__builtin_memcpy(claim.address, &ip.source, sizeof(ip.source));
	return quoted(skb, at + (ip.version_ihl & 0xf) * 4, ip.protocol, &claim);
}

/* A raw socket's ICMPv6 message comes without the IP header. */
SEC("socket/icmpv6")
int icmpv6(struct __sk_buff *skb)
{
	struct claim claim = {};
	struct icmp error;
	struct ipv6 ip;
	__u32 at = sizeof(error);

	if (bpf_skb_load_bytes(skb, 0, &error, sizeof(error)))
		return LEAVE;
	if (error.type < ICMPV6_UNREACHABLE || error.type > ICMPV6_PARAMETER_PROBLEM)
		return LEAVE;
	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)))
		return LEAVE;
	at += sizeof(ip);
	__u8 protocol = ip.next_header;

	if (protocol == EXT_FRAGMENT) {
		struct ipv6_fragment fragment;

		if (bpf_skb_load_bytes(skb, at, &fragment, sizeof(fragment)))
			return LEAVE;
		if (be16(fragment.offset_more) & IPV6_OFFSET)
			return LEAVE;
		protocol = fragment.next_header;
		at += sizeof(fragment);
	}
	if (ip.version_class >> 4 != 6 || !is_steered(protocol))
		return LEAVE;
	claim.version = 6;
	__builtin_memcpy(claim.address, &ip.source, sizeof(ip.source));
	return quoted(skb, at, protocol, &claim);
}
