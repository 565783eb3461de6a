// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * Takes every frame of the interface to the AF_XDP socket of the queue it came in on, and drops
 * what comes in on a queue without a socket: nothing reaches the kernel's network stack.
 *
 * Two entry points, as in steer.bpf.c, and no helper that is only for GPL programs.
 */
#include <linux/bpf.h>
#include <linux/types.h>

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*bpf_redirect_map)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} SOCKETS SEC(".maps");

/* `COUNTERS` in tap.rs. */
enum counter {
	REDIRECTED,
	NO_SOCKET,
	COUNTED,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTED);
	__type(key, __u32);
	__type(value, __u64);
} COUNTERS SEC(".maps");

static inline __attribute__((always_inline)) int take(struct xdp_md *ctx)
{
	int action = bpf_redirect_map(&SOCKETS, ctx->rx_queue_index, XDP_DROP);
	__u32 which = action == XDP_REDIRECT ? REDIRECTED : NO_SOCKET;
	__u64 *counter = bpf_map_lookup_elem(&COUNTERS, &which);

	if (counter)
		*counter += 1;
	return action;
}

SEC("xdp.frags")
int tap_frags(struct xdp_md *ctx)
{
	return take(ctx);
}

SEC("xdp")
int tap(struct xdp_md *ctx)
{
	return take(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
