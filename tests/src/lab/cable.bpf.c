// A cable with a mind of its own: runs where a frame enters it at one end, and sends it out at the
// other. The macros come from the lab: OUT is the index of the interface at the other end.
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SEC(name) __attribute__((section(name), used))

static long (*const vlan_push)(struct __sk_buff *, __u16, __u16) = (void *)BPF_FUNC_skb_vlan_push;
static long (*const vlan_pop)(struct __sk_buff *) = (void *)BPF_FUNC_skb_vlan_pop;
static long (*const redirect)(__u32, __u64) = (void *)BPF_FUNC_redirect;
static __u32 (*const random)(void) = (void *)BPF_FUNC_get_prandom_u32;

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
#ifdef LOSS
    if (random() % 1000 < LOSS)
        return TC_ACT_SHOT;
#endif
    return redirect(OUT, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
