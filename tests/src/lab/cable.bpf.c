// A cable with a mind of its own: runs where a frame enters it at one end, and sends it out at the
// other. The macros come from the lab: OUT is the index of the interface at the other end.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SEC(name) __attribute__((section(name), used))

static long (*const vlan_push)(struct __sk_buff *, __u16, __u16) = (void *)BPF_FUNC_skb_vlan_push;
static long (*const vlan_pop)(struct __sk_buff *) = (void *)BPF_FUNC_skb_vlan_pop;
static long (*const redirect)(__u32, __u64) = (void *)BPF_FUNC_redirect;
static __u32 (*const random)(void) = (void *)BPF_FUNC_get_prandom_u32;
static long (*const load)(const void *, __u32, void *, __u32) = (void *)BPF_FUNC_skb_load_bytes;

#ifdef BARE_ACKS
// An IPv4 packet whose TCP segment says nothing but an acknowledgment, by a header of so many bytes at
// most.
static int is_bare_ack(struct __sk_buff *skb)
{
    __u8 frame[48];
    if (load(skb, 0, frame, sizeof frame))
        return 0;
    __u8 *ip = frame + 14, *tcp = ip + 20;
    unsigned header = (tcp[12] >> 4) * 4, length = ip[2] << 8 | ip[3];
    return frame[12] == 8 && frame[13] == 0 && ip[0] == 0x45 && ip[9] == 6 && tcp[13] == 0x10
        && length == 20 + header && header <= BARE_ACKS;
}
#endif

SEC("classifier")
int cable(struct __sk_buff *skb)
{
#ifdef PUSH
    if (vlan_push(skb, 0x0081 /* 0x8100 in network order */, PUSH))
        return TC_ACT_SHOT;
#endif
#ifdef POP
    if (!skb->vlan_present || (skb->vlan_tci & 0xfff) != POP || vlan_pop(skb))
        return TC_ACT_SHOT;
#endif
#ifdef BARE_ACKS
    if (is_bare_ack(skb))
        return TC_ACT_SHOT;
#endif
#ifdef LOSS
    if (random() % 1000 < LOSS)
        return TC_ACT_SHOT;
#endif
    return redirect(OUT, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
