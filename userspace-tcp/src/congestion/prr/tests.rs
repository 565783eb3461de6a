use super::*;

/// What is sent after each of the 19 ACKs of RFC 6937 section 3.1; RFC 9937 has no figures. cwnd was 20 segments,
/// of which the zeroth is lost. ssthresh is 10, and limited transmit has sent two more.
fn single_loss(smss: u64) -> Vec<u64> {
    let mut prr = Prr::begin(20 * smss);
    let mut pipe = 20 * smss;
    let mut sent = vec![1, 1];
    for ack in 3..=19 {
        pipe -= smss;
        if ack == 3 {
            // The segment that is found lost.
            pipe -= smss;
        }
        let delivery = Delivery {
            bytes: smss,
            pipe,
            safe: false,
        };
        let segments = prr.on_ack(&delivery, 10 * smss, smss) / smss;
        prr.sent(segments * smss);
        pipe += segments * smss;
        sent.push(segments);
    }
    sent
}

/// The figure of the RFC counts segments, as if they were bytes. It ends with a pipe of ssthresh.
#[test]
fn a_single_loss_sends_at_every_second_ack() {
    assert_eq!(
        single_loss(1),
        [1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0]
    );
}

/// A segment goes when all of it is due: an ACK later than by the figure.
#[test]
fn whole_segments_wait_until_they_are_due() {
    assert_eq!(
        single_loss(1000),
        [1, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1]
    );
}

/// RFC 6937 section 3.1 (RFC 9937 has no figures): segments 0 to 14 of 20 are lost; what the ACKs of 17, 18 and 19 let out.
fn burst_loss(safe: bool) -> Vec<(u64, u64)> {
    let mut prr = Prr::begin(20_000);
    let mut pipe = 4000;
    (17..=19)
        .map(|ack| {
            if ack > 17 {
                pipe -= 1000;
            }
            let delivery = Delivery {
                bytes: 1000,
                pipe,
                safe,
            };
            let segments = prr.on_ack(&delivery, 10_000, 1000) / 1000;
            prr.sent(segments * 1000);
            let before = pipe;
            pipe += segments * 1000;
            (before / 1000, segments)
        })
        .collect()
}

#[test]
fn a_burst_loss_is_mended_one_for_one_by_the_conservative_bound() {
    assert_eq!(burst_loss(false), [(4, 1), (4, 1), (4, 1)]);
}

#[test]
fn a_burst_loss_is_mended_in_slow_start_by_the_other() {
    assert_eq!(burst_loss(true), [(4, 2), (5, 2), (6, 2)]);
}

/// RFC 9937: what was not sent for want of data may be sent later.
#[test]
fn a_stall_is_caught_up() {
    let mut prr = Prr::begin(20_000);
    let ack = |pipe| Delivery {
        bytes: 1000,
        pipe,
        safe: true,
    };
    let first = prr.on_ack(&ack(18_000), 10_000, 1000);
    prr.sent(first);
    for i in 1..=8 {
        prr.on_ack(&ack(18_000 - i * 1000), 10_000, 1000);
    }
    // Ten delivered, one sent; the pipe is 9 then: up to ssthresh at once, never beyond.
    assert_eq!(prr.on_ack(&ack(9000), 10_000, 1000), 1000);
    assert_eq!(prr.on_ack(&ack(4000), 10_000, 1000), 6000);
}

/// RFC 9937: the conservative bound is the larger of what is left of all that was delivered and what this ACK
/// delivers. So it never adds to what is in the network, and never stops the ACK clock.
#[test]
fn the_conservative_bound_takes_the_larger_of_its_two_terms() {
    let unsafe_ack = |bytes| Delivery {
        bytes,
        pipe: 10_000,
        safe: false,
    };
    // More was sent than was delivered: as after a retransmission that a timer forced.
    let mut prr = Prr::begin(50_000);
    prr.sent(1000);
    assert_eq!(prr.on_ack(&unsafe_ack(1000), 35_000, 1000), 1000);
    prr.sent(1000);
    assert_eq!(prr.on_ack(&unsafe_ack(1000), 35_000, 1000), 1000);
    // Less was: what was left goes as well.
    assert_eq!(prr.on_ack(&unsafe_ack(300), 35_000, 1000), 300);
    assert_eq!(prr.on_ack(&unsafe_ack(1000), 35_000, 1000), 1300);
    // And nothing for an ACK that delivers nothing.
    prr.sent(1300);
    assert_eq!(prr.on_ack(&unsafe_ack(0), 35_000, 1000), 0);
}

/// RFC 9937: what was sent beyond what was delivered stays what it was; each ACK lets out no more than
/// it delivers.
#[test]
fn the_conservative_bound_conserves_packets() {
    let mut prr = Prr::begin(50_000);
    prr.sent(1000);
    let (mut delivered, mut sent) = (0, 1000);
    for i in 0..40 {
        let bytes = [300, 1000, 2900][i % 3];
        delivered += bytes;
        let delivery = Delivery {
            bytes,
            pipe: 10_000,
            safe: false,
        };
        let sndcnt = prr.on_ack(&delivery, 35_000, 1000);
        prr.sent(sndcnt);
        sent += sndcnt;
        assert!(sent <= delivered + 1000);
    }
}

/// With nothing in the network no ACK would come that lets more out: one segment always may.
#[test]
fn an_empty_pipe_lets_one_segment_out() {
    let mut prr = Prr::begin(20_000);
    prr.sent(5000);
    let empty = |bytes| Delivery {
        bytes,
        pipe: 0,
        safe: false,
    };
    assert_eq!(prr.on_ack(&empty(0), 10_000, 1000), 1000);
    assert_eq!(prr.on_ack(&empty(300), 10_000, 1000), 1000);
    let one = Delivery {
        bytes: 0,
        pipe: 1,
        safe: false,
    };
    assert_eq!(prr.on_ack(&one, 10_000, 1000), 0);
}

#[test]
fn the_first_retransmission_is_always_allowed() {
    let mut prr = Prr::begin(20_000);
    let nothing = Delivery {
        bytes: 0,
        pipe: 19_000,
        safe: false,
    };
    assert_eq!(prr.on_ack(&nothing, 10_000, 1000), 1000);
    prr.sent(1000);
    assert_eq!(prr.on_ack(&nothing, 10_000, 1000), 0);
}

#[test]
fn no_number_is_too_great() {
    let mut prr = Prr::begin(0);
    let delivery = Delivery {
        bytes: u64::MAX,
        pipe: u64::MAX,
        safe: true,
    };
    for ssthresh in [0, 1, u64::MAX - 1] {
        prr.on_ack(&delivery, ssthresh, 1000);
        prr.sent(u64::MAX);
    }
    prr.on_ack(
        &Delivery {
            pipe: 0,
            ..delivery
        },
        u64::MAX,
        u64::MAX,
    );
}
