/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* What the steering program reads of packets: headers, and numbers in them. */

/*
 * linux/if_vlan.h, linux/ip.h, linux/ipv6.h, linux/tcp.h, linux/udp.h and linux/sctp.h, by bytes: bit-fields
 * need no care.
 */

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
	__be32 source;
	__be32 destination;
};

struct ipv6 {
	__u8 version_class;
	__u8 class_flow[3];
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__be32 source[4];
	__be32 destination[4];
};

struct ipv6_fragment {
	__u8 next_header;
	__u8 reserved;
	__be16 offset_more;
	__be32 id;
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

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__be16 checksum;
};

struct sctp {
	__be16 source;
	__be16 destination;
	__be32 tag;
	__be32 checksum;
};

/* The type of an INIT, which is the first byte of its chunk, and alone in its packet. */
#define SCTP_INIT 1

#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_OFFSET 0x1fff
#define IPV6_MORE_FRAGMENTS 0x0001
#define IPV6_OFFSET 0xfff8

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
