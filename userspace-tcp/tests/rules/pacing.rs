use std::time::Duration;

use userspace_tcp::{Config, Flags, Options};

use crate::script::*;

const RTT: Duration = Duration::from_millis(50);

/// An established connection with a round trip of 50 ms and a window of twenty full segments.
fn far_away(config: Config) -> Script {
    let sack_permitted = config.sack;
    let mut script = Script::new(config);
    script.connect();
    script.one();
    script.wait(RTT);
    let options = Options {
        mss: Some(1460),
        sack_permitted,
        ..Options::default()
    };
    script.give_options(Flags::SYN | ACK, 0, 1, 0, options);
    script.events();
    script.out();
    for _ in 0..30 {
        script.send(1460).unwrap();
    }
    // The initial window goes at once.
    assert_eq!(script.out().len(), 10);
    script.wait(RTT);
    script.give(ACK, 1, 7301, 0);
    script.give(ACK, 1, 14_601, 0);
    assert_eq!(script.info().cwnd, 29_200);
    script
}

#[test]
fn what_is_lost_waits_for_the_pace_but_for_the_first() {
    let config = Config {
        sack: true,
        ..plain()
    };
    let mut script = far_away(config);
    assert_eq!(script.out().len(), 10);
    script.give_sack(14_601, &[(14_601 + 4 * 1460, 14_601 + 10 * 1460)]);
    assert_eq!(script.one().seq, 14_601);
    // What went in spite of the pace has to be waited for, too.
    let (mut waited, mut then) = (Duration::ZERO, Vec::new());
    while then.is_empty() {
        waited += script.wait_for_timer();
        then.extend(script.out().iter().map(|out| out.seq));
    }
    assert!(waited > Duration::from_micros(6250), "{waited:?}");
    assert_eq!(then[..3], [16_061, 17_521, 18_981]);
}
