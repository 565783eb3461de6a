use std::time::Duration;

use rnic::embedded::XdpMode;
use userspace_tcp::CongestionControl;

use super::super::settings::{Direction, Role};
use super::*;

fn settings(window: u32) -> Settings {
    Settings {
        interface: "eth0".to_owned(),
        mode: XdpMode::Auto,
        role: Role::Listen("198.18.0.1:1".parse().unwrap()),
        direction: Direction::Both,
        window,
        queue_segments: None,
        mss: None,
        congestion: CongestionControl::Cubic,
        ecn: false,
        pacing: true,
        nodelay: false,
        connect_timeout: Duration::ZERO,
        user_timeout: Duration::ZERO,
        keepalive: None,
        busy: false,
    }
}

#[test]
fn every_use_of_a_frame_has_its_place() {
    for (window, mss, queues) in [(16 << 20, 1460, 1), (1 << 16, 1460, 4), (1 << 20, 3446, 2)] {
        let sizes = Sizes::of(&settings(window), mss, queues).unwrap();
        let rings = queues * (sizes.rx_ring + sizes.tx_ring);
        let held = (sizes.queue_segments + sizes.pieces) as u32;
        assert!(sizes.frames > rings + held, "{sizes:?}");
        assert!(sizes.pieces * usize::from(mss - 12) > window as usize);
        assert!(sizes.rx_ring.is_power_of_two());
    }
}

#[test]
fn the_send_queue_fills_the_window_unless_told_otherwise() {
    let mut settings = settings(16 << 20);
    let sizes = Sizes::of(&settings, 1460, 1).unwrap();
    assert!(sizes.queue_segments * 1448 >= 16 << 20);
    settings.queue_segments = Some(3);
    assert_eq!(Sizes::of(&settings, 1460, 1).unwrap().queue_segments, 3);
}

#[test]
fn more_than_packet_memory_can_be_is_refused_with_the_numbers() {
    let error = Sizes::of(&settings(1 << 30), 536, 1).unwrap_err();
    let told = error.to_string();
    assert!(told.contains("--window"), "{told}");
    let mut settings = settings(1 << 16);
    settings.queue_segments = Some(usize::MAX);
    assert!(Sizes::of(&settings, 1460, 1).is_err());
}
