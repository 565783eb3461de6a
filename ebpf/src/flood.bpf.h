/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Limits for unknown flows. A flood of segments that belong to no connection would take the time of the
 * one thread that serves all connections; here it costs a fraction of that.
 *
 * Segments of flows that the shard knows pass without a limit, but for SYNs. SCTP's packets count as segments,
 * and its INITs as SYNs. All others, and their fragments, take a token each from a bucket of their kind and
 * processor. What answers a SYN-ACK has a bucket of its own before that: senders that sent no SYN do not empty
 * it. A segment that finds the bucket empty is dropped and remembered. When it comes again as a TCP retransmits
 * (not sooner than TIMES.again_min after the one before), it takes a token from a second bucket. A flood from random
 * sources does not come again, so a new connection is delayed by one retransmission, and not kept out. Nor does
 * a flood of SYNs that come again sooner than any TCP's.
 */

#define TCP_SYN 0x02
#define TCP_ACK 0x10

/* `Rate` in flood.rs. */
struct rate {
	/* Nanoseconds between tokens; 0: no limit. */
	__u64 interval;
	/* Nanoseconds in which an empty bucket fills. */
	__u64 depth;
};

enum kind { SYNS, STRANGERS, FRAGMENTS, KINDS };

/* Set before loading, in the order of `enum kind`. */
volatile const struct rate RATES[KINDS];

/* 64-bit words of the hash's key. */
#define HASH_KEY_WORDS 11

/* Random, set before loading: an attacker can't aim at the place of another's flow. */
volatile const __u64 HASH_KEY[HASH_KEY_WORDS];

/* The bucket of half-open flows' segments, behind those by kind and by kind for what comes again. */
#define HALF_OPENS (2 * KINDS)
#define ALL_BUCKETS (HALF_OPENS + 1)

/*
 * When each will be full, in nanoseconds. The place of the processor is its own, and this program is not
 * interrupted by itself.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, ALL_BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} BUCKETS SEC(".maps");

/* `PLACES` in flood.rs. */
#define FLOW_PLACES (1 << 20)

/* By a flow's hash: how many flows of this state have this place. The shard alone writes it. */
struct flows {
	__u8 known[FLOW_PLACES];
	__u8 half_open[FLOW_PLACES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct flows);
} FLOWS SEC(".maps");

#define DROPPED_PLACES (1 << 21)
/* A mark: the hash's bits above its place, whether it is hasty, and the tick in which it was made. */
#define TAG (~(__u32)(DROPPED_PLACES - 1))
#define HASTY (1 << 20)
#define TICKS (HASTY - 1)
/* 2^24 ns: 17 ms. */
#define TICK_SHIFT 24

/* `Times` in flood.rs, in ticks. Set before loading. */
struct times {
	__u32 again_min;
	__u32 hasty_min;
	__u32 again_max;
};

volatile const struct times TIMES;

/*
 * By the low bits of a hash, the marks of two that were dropped. The older gives way. Processors may write over
 * each other: then one is forgotten.
 */
struct dropped {
	__u32 mark[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DROPPED_PLACES);
	__type(key, __u32);
	__type(value, struct dropped);
} DROPPED SEC(".maps");

/* What a hash is of: the addresses with both ports, or with an identification. */
#define FLOW_HASH 0
#define PACKET_HASH 1

/*
 * The upper half of Multilinear-HM (Lemire, Kaser: Strongly universal string hashing is fast), so
 * that two tuples have the same place by chance only, whoever chose them. `hash` in flood.rs.
 */
static __always_inline __u32 hash(const struct found *found, __u32 last, __u64 what)
{
	__u64 sum = HASH_KEY[0];

	if (found->version == 4) {
		struct ipv4 *ip = found->ip;

		sum += (HASH_KEY[1] + ip->source) * (HASH_KEY[2] + ip->destination);
	} else {
		struct ipv6 *ip = found->ip;

		sum += (HASH_KEY[3] + ip->source[0]) * (HASH_KEY[4] + ip->source[1]);
		sum += (HASH_KEY[5] + ip->source[2]) * (HASH_KEY[6] + ip->source[3]);
		sum += (HASH_KEY[7] + ip->destination[0]) * (HASH_KEY[8] + ip->destination[1]);
		sum += (HASH_KEY[1] + ip->destination[2]) * (HASH_KEY[2] + ip->destination[3]);
	}
	sum += (HASH_KEY[9] + last) * (HASH_KEY[10] + what);
	return sum >> 32;
}

/* Whether the shard knows the flow. By chance some that it doesn't know have the place of one. */
static __always_inline int is_known(__u32 hash)
{
	__u32 zero = 0;
	struct flows *flows = bpf_map_lookup_elem(&FLOWS, &zero);

	return flows && flows->known[hash & (FLOW_PLACES - 1)];
}

/* Whether the shard has sent it a SYN-ACK. By chance as above. */
static __always_inline int is_half_open(__u32 hash)
{
	__u32 zero = 0;
	struct flows *flows = bpf_map_lookup_elem(&FLOWS, &zero);

	return flows && flows->half_open[hash & (FLOW_PLACES - 1)];
}

/* Takes a token, if there is one. */
static __always_inline int take(__u32 bucket, __u64 interval, __u64 depth, __u64 now)
{
	__u64 *full = bpf_map_lookup_elem(&BUCKETS, &bucket);

	if (!full)
		return 0;
	__u64 at = *full > now ? *full : now;

	if (at + interval > now + depth)
		return 0;
	*full = at + interval;
	return 1;
}

/* The ticks since a mark was made. */
static __always_inline __u32 age(__u32 mark, __u64 now)
{
	return ((__u32)(now >> TICK_SHIFT) - mark) & TICKS;
}

static __always_inline struct dropped *dropped_at(__u32 hash)
{
	__u32 place = hash & (DROPPED_PLACES - 1);

	return bpf_map_lookup_elem(&DROPPED, &place);
}

/* Puts a newer mark of the same in the place of one. Whether that is as long ago as it should be. */
static __always_inline int renew(__u32 *place, __u32 mark, __u64 now, int syn)
{
	__u32 ticks = age(*place, now);
	__u32 hasty = 0;

	/* Other segments of a flow may follow each other at once. */
	if (syn && ticks <= TIMES.again_max)
		hasty = ticks < TIMES.again_min ? HASTY : *place & HASTY;
	*place = mark | hasty;
	return ticks >= (hasty ? TIMES.hasty_min : TIMES.again_min) && ticks <= TIMES.again_max;
}

/* Remembers what is about to be dropped. Whether it was dropped before, as long ago as it should be. */
static __always_inline int comes_again(__u32 hash, __u64 now, int syn)
{
	struct dropped *dropped = dropped_at(hash);

	if (!dropped)
		return 0;
	__u32 mark = (hash & TAG) | ((__u32)(now >> TICK_SHIFT) & TICKS);
	__u32 first = dropped->mark[0], second = dropped->mark[1];

	if (!((first ^ mark) & TAG))
		return renew(&dropped->mark[0], mark, now, syn);
	if (!((second ^ mark) & TAG))
		return renew(&dropped->mark[1], mark, now, syn);
	if (age(first, now) > age(second, now))
		dropped->mark[0] = mark;
	else
		dropped->mark[1] = mark;
	return 0;
}

static __always_inline int was_dropped(__u32 hash, __u64 now)
{
	struct dropped *dropped = dropped_at(hash);

	if (!dropped)
		return 0;
	__u32 first = dropped->mark[0], second = dropped->mark[1];

	return (!((first ^ hash) & TAG) && age(first, now) <= TIMES.again_max) ||
	       (!((second ^ hash) & TAG) && age(second, now) <= TIMES.again_max);
}

static __always_inline enum reason limit_fragment(__u64 now)
{
	__u64 interval = RATES[FRAGMENTS].interval;

	if (!interval || take(FRAGMENTS, interval, RATES[FRAGMENTS].depth, now))
		return REDIRECTED_FRAGMENT;
	return DROP_FRAGMENT;
}

/* What to do with a claimed segment that is whole. */
static __always_inline enum reason limit(const struct found *found)
{
	int syn = found->asks;
	__u32 kind = syn ? SYNS : STRANGERS;
	__u64 interval = syn ? RATES[SYNS].interval : RATES[STRANGERS].interval;
	__u64 depth = syn ? RATES[SYNS].depth : RATES[STRANGERS].depth;

	/* Where there is no limit, whether the flow is known costs nothing either. */
	if (!interval)
		return REDIRECTED;
	__u32 flow = hash(found, found->ports, FLOW_HASH);

	/* A SYN to a connection that there is has to be rare (RFC 5961 section 4). */
	if (!syn && is_known(flow))
		return REDIRECTED;
	__u64 now = bpf_ktime_get_ns();

	if (!syn && is_half_open(flow) && take(HALF_OPENS, interval, depth, now))
		return REDIRECTED;
	if (take(kind, interval, depth, now))
		return REDIRECTED;
	if (comes_again(syn ? ~flow : flow, now, syn) && take(KINDS + kind, interval, depth, now))
		return REDIRECTED;
	return syn ? DROP_SYN : DROP_UNKNOWN_FLOW;
}
