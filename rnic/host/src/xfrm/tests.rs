use super::*;

const OUR_INDEX: u32 = 7;

/// `src 198.18.0.0/24 dst 198.18.0.2/32 proto tcp dport 7000 dir out action allow priority 5 index 9`.
fn bytes(change: impl FnOnce(&mut [u8; POLICY_LEN]), attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut head = [0; POLICY_LEN];
    head[..4].copy_from_slice(&[198, 18, 0, 2]);
    head[16..20].copy_from_slice(&[198, 18, 0, 0]);
    head[32..34].copy_from_slice(&7000_u16.to_be_bytes());
    head[34..36].copy_from_slice(&u16::MAX.to_be_bytes());
    head[40..42].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    head[42..45].copy_from_slice(&[32, 24, 6]);
    head[152..156].copy_from_slice(&5_u32.to_ne_bytes());
    head[156..160].copy_from_slice(&9_u32.to_ne_bytes());
    head[160] = 1;
    change(&mut head);
    let mut all = head.to_vec();
    for (kind, value) in attributes {
        let len = u16::try_from(4 + value.len()).unwrap();
        all.extend(len.to_ne_bytes());
        all.extend(kind.to_ne_bytes());
        all.extend_from_slice(value);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    all
}

fn read(
    change: impl FnOnce(&mut [u8; POLICY_LEN]),
    attributes: &[(u16, &[u8])],
) -> Option<IpsecPolicy> {
    policy(&bytes(change, attributes), &[OUR_INDEX]).unwrap()
}

#[test]
fn a_policy_is_read_as_the_kernel_has_it() {
    let found = read(|head| head[161] = 1, &[(XFRMA_POLICY_TYPE, &[0; 6])]).unwrap();
    let words =
        "src 198.18.0.0/24 dst 198.18.0.2/32 proto 6 dport 7000 dir out block priority 5 index 9";
    assert_eq!(found.to_string(), words);
    let found = read(|_| {}, &[(XFRMA_TMPL, &[0; 64])]).unwrap();
    assert_eq!(found.action, IpsecAction::Protect);
    let found = read(|head| head[160] = 0, &[]).unwrap();
    assert_eq!(found.direction, IpsecDirection::In);
    assert_eq!(found.action, IpsecAction::Clear);
    assert!(!found.is_sub);
    let sub = [XFRM_POLICY_TYPE_SUB, 0, 0, 0, 0, 0];
    assert!(read(|_| {}, &[(XFRMA_POLICY_TYPE, &sub)]).unwrap().is_sub);
}

#[test]
fn policies_that_select_none_of_our_packets_are_left_out() {
    // Forwarded packets, and a socket's.
    for direction in 2..6 {
        assert_eq!(read(|head| head[160] = direction, &[]), None);
    }
    let one = 1_u32.to_ne_bytes();
    assert_eq!(read(|_| {}, &[(XFRMA_IF_ID, &one)]), None);
    let mark = [1, 0, 0, 0, 0xff, 0, 0, 0];
    assert_eq!(read(|_| {}, &[(XFRMA_MARK, &mark)]), None);
    // What no mark matches as well.
    assert!(read(|_| {}, &[(XFRMA_MARK, &[0, 0, 0, 0, 0xff, 0, 0, 0])]).is_some());
    let dev = |index: u32| {
        move |head: &mut [u8; POLICY_LEN]| {
            head[48..52].copy_from_slice(&index.to_ne_bytes());
        }
    };
    assert!(read(dev(OUR_INDEX), &[]).is_some());
    assert_eq!(read(dev(OUR_INDEX + 1), &[]), None);
}

#[test]
fn what_is_no_policy_is_not_taken_for_one_that_allows() {
    let whole = bytes(|_| {}, &[]);
    assert_eq!(policy(&whole[..POLICY_LEN - 1], &[]), Err(Unreadable));
    for (at, value) in [(40, 99), (42, 33), (43, 129)] {
        let wrong = bytes(|head| head[at] = value, &[]);
        assert_eq!(policy(&wrong, &[]), Err(Unreadable), "{at}");
    }
    // An attribute that ends beyond the message ends them.
    let mut cut = whole;
    cut.extend([200, 0, 5, 0, 1, 2]);
    assert!(policy(&cut, &[]).unwrap().is_some());
}
