// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * A flood's frames. `flood` is run by BPF_PROG_RUN with BPF_F_TEST_XDP_LIVE_FRAMES: each run makes the
 * next frame of the one that is there and sends it, without a socket buffer. `pass` is for the other
 * end of a link that no RNIC serves, which has to have a program to take such frames: its kernel gets
 * all of them.
 *
 * The kernel gives the pages of frames that have been received to later runs as they are, so checksums
 * are brought up to date from what the frame has (RFC 1624 section 3).
 */
#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#undef __always_inline
#define __always_inline inline __attribute__((always_inline))

static long (*bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;

/* Set before loading. Offsets are of the frame; 0: there is no such field. */

/* The interface that sends. */
volatile const __u32 OUT;
/* The last 16 bits of the source address, when sources are random. */
volatile const __u32 SOURCE;
/* The IPv4 header's identification and its checksum. */
volatile const __u32 V4_ID, V4_CHECKSUM;
/* The last 16 bits of the Fragment header's identification. */
volatile const __u32 V6_ID;
/* The TCP header, which all frames have. */
volatile const __u32 TCP;
/* Beyond the port everything is drawn: so many 16-bit words of payload. */
volatile const __u32 JUNK;

/* splitmix64's state. Set before loading. */
__u64 CHANCE = 1;

static __always_inline __u64 next(void)
{
	__u64 mixed = __sync_fetch_and_add(&CHANCE, 0x9e3779b97f4a7c15);

	mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
	mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
	return mixed ^ (mixed >> 31);
}

/* Puts a word in its place. What it changes of a sum: ~m + m'. */
static __always_inline __u32 put(void *at, __u16 word)
{
	__u16 before = *(__u16 *)at;

	*(__u16 *)at = word;
	return (__u16)~before + word;
}

static __always_inline void correct(void *at, __u32 change)
{
	__u16 *checksum = at;
	__u32 sum = (__u16)~*checksum + change;

	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	*checksum = ~sum;
}

/* Whether the frame has so many bytes; the verifier takes note. */
#define has(frame, bytes) ((frame) + (bytes) <= (void *)(long)ctx->data_end)

SEC("xdp")
int flood(struct xdp_md *ctx)
{
	void *frame = (void *)(long)ctx->data;
	__u64 drawn = next(), numbers = next();
	__u32 ip = 0, tcp = 0;

	if (SOURCE) {
		if (!has(frame, SOURCE + 2))
			return XDP_ABORTED;
		ip = put(frame + SOURCE, drawn);
		tcp = ip;
	}
	if (V4_ID) {
		if (!has(frame, V4_ID + 2) || !has(frame, V4_CHECKSUM + 2))
			return XDP_ABORTED;
		ip += put(frame + V4_ID, drawn >> 16);
		correct(frame + V4_CHECKSUM, ip);
	}
	if (V6_ID) {
		if (!has(frame, V6_ID + 2))
			return XDP_ABORTED;
		put(frame + V6_ID, drawn >> 16);
	}
	void *header = frame + TCP;

	if (!has(header, 20))
		return XDP_ABORTED;
	/* A source port that is none of a well-known service: its first byte comes first. */
	tcp += put(header, (drawn >> 32) | 0x80);
	for (int word = 0; word < 4; word++)
		tcp += put(header + 4 + 2 * word, numbers >> (16 * word));
	if (JUNK) {
		__u64 fields = next();

		tcp += put(header + 12, fields);
		tcp += put(header + 14, fields >> 16);
		tcp += put(header + 18, fields >> 32);
		for (__u32 word = 0; word < 64 && word < JUNK; word++) {
			void *at = header + 20 + 2 * word;

			if (!has(at, 2))
				return XDP_ABORTED;
			tcp += put(at, word & 1 ? fields >> 16 : (fields = next()));
		}
	}
	correct(header + 16, tcp);
	return bpf_redirect(OUT, 0);
}

SEC("xdp")
int pass(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
