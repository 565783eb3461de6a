//! Moments that random work comes to too seldom.

use super::*;

/// Two hosts, one of which sends in bursts, to whom the same happens.
struct Both([Host; 2]);

impl Both {
    fn new(config: &Config) -> Self {
        Self([false, true].map(|in_bursts| Host::new(config, in_bursts)))
    }

    /// The first peer acknowledges so many bytes and announces this window.
    fn acknowledge(&mut self, bytes: u32, window: u16) {
        for host in &mut self.0 {
            let Conn { tuple, ours, .. } = host.conns[0];
            let mut ack = header(tuple, Flags::ACK, IRS.add(1), ours.add(bytes));
            ack.window = window;
            let segment = Segment::new(ack, &[]);
            host.stack.receive(host.now, tuple, &segment, OPTIONS);
        }
    }

    fn post(&mut self, segments: usize) {
        for host in &mut self.0 {
            (0..segments).for_each(|_| host.post(0, 1000));
        }
    }

    fn later(&mut self, time: Duration) {
        for host in &mut self.0 {
            host.now += time;
            host.stack.advance(host.now);
        }
    }

    /// Lets time come to the next deadline.
    fn wait(&mut self) {
        for host in &mut self.0 {
            host.now = host.stack.next_deadline().unwrap();
            host.stack.advance(host.now);
        }
    }

    /// What went out, which was the same.
    fn send(&mut self) -> String {
        let [one, other] = &mut self.0;
        let sent = one.sends(usize::MAX, usize::MAX, usize::MAX);
        assert_eq!(sent, other.sends(usize::MAX, usize::MAX, usize::MAX));
        assert_eq!(one.looks(), other.looks());
        for host in &mut self.0 {
            for (conn, segment, buf) in host.out.drain(..) {
                let _ = host.stack.transmitted(conn, segment, buf);
            }
        }
        sent
    }
}

fn without_timestamps() -> Config {
    Config {
        timestamps: false,
        ..Config::default()
    }
}

/// RFC 5681 section 4.1: a window that was not used for long starts over.
#[test]
fn a_burst_behind_an_idle_time_fits_the_window_that_it_begins_with() {
    let mut both = Both::new(&without_timestamps());
    let mut acked = 0;
    for _ in 0..3 {
        both.post(20);
        while both.0[0].conns[0].posted > acked {
            let sent = both.send().lines().count() as u32;
            acked += 1000 * sent;
            both.later(Duration::from_micros(100));
            both.acknowledge(acked, 60_000);
        }
    }
    both.later(Duration::from_secs(10));
    both.post(40);
    let sent = both.send().lines().count();
    assert_eq!(sent, 14, "14 600 bytes, RFC 6928");
}

/// A window opens when its probe is due but has not left: none is left to be sent later.
#[test]
fn a_burst_takes_the_place_of_a_window_probe() {
    let mut both = Both::new(&without_timestamps());
    both.acknowledge(0, 0);
    both.post(1);
    assert_eq!(both.send(), "");
    both.wait();
    both.acknowledge(0, 1000);
    both.post(1);
    assert_eq!(both.send().lines().count(), 1);
    both.acknowledge(1000, 0);
    assert_eq!(both.send(), "");
}
