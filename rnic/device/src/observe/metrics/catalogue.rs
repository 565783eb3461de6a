//! Which metric each of the device's counters is, with its help.
//!
//! Every counter has a place here: a test compares the catalogue with what a device counts. Names are
//! those of Prometheus's conventions: base units, `_total` for what only grows.

mod shard;

use super::text::MetricKind::{self, Counter, Gauge};
pub(super) use shard::SHARD;

/// A metric and the counters that are its samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) kind: MetricKind,
    /// Labels, and the counter that has the value.
    pub(super) members: &'static [(&'static str, &'static str)],
}

const fn one(
    name: &'static str,
    help: &'static str,
    members: &'static [(&'static str, &'static str)],
) -> Family {
    Family {
        name,
        help,
        kind: Counter,
        members,
    }
}

const fn level(
    name: &'static str,
    help: &'static str,
    members: &'static [(&'static str, &'static str)],
) -> Family {
    Family {
        name,
        help,
        kind: Gauge,
        members,
    }
}

/// What the device counts beside its shards.
pub(super) const DEVICE: &[Family] = &[
    level(
        "rnic_unserved_queues",
        "RX queues that the interface got after it was opened: the kernel gets their frames.",
        &[("", "unserved_queues")],
    ),
    level(
        "rnic_stalled_shards",
        "Shards whose threads have not polled for 5 s, and do not sleep.",
        &[("", "stalled_shards")],
    ),
    one(
        "rnic_icmp_messages_total",
        "ICMP errors received for the RNIC's claims, those that it ignored, and those lost because the shard was busy.",
        &[
            (r#"result="received""#, "icmp_received"),
            (r#"result="unusable""#, "icmp_unusable"),
            (r#"result="lost""#, "icmp_lost"),
        ],
    ),
    one(
        "rnic_capture_frames_total",
        "Frames of captures, by result.",
        &[
            (r#"result="captured""#, "capture_frames"),
            (r#"result="dropped""#, "capture_dropped"),
        ],
    ),
    level(
        "rnic_claimed_ports",
        "Local addresses and ports whose frames are the RNIC's.",
        &[("", "device_ports")],
    ),
];

/// What the Privileged Resource Manager counts: once for all devices of a process.
pub(super) const PRM: &[Family] = &[
    one(
        "rnic_requests_delayed_total",
        "Clients' requests that waited, because their user makes more than it may in a second.",
        &[("", "requests_delayed")],
    ),
    one(
        "rnic_memory_refusals_total",
        "Requests refused because the process had no memory left for them.",
        &[("", "refused_for_memory")],
    ),
    one(
        "rnic_memory_reserve_used_total",
        "Times that an allocation failed and was served from the heap's reserve.",
        &[("", "memory_reserve_used")],
    ),
    level(
        "rnic_clients",
        "Clients of the RNIC.",
        &[("", "device_clients")],
    ),
    level(
        "rnic_resource_usage",
        "What all clients hold together, by the name of the limit's resource.",
        &[
            (
                r#"resource="protection_domains""#,
                "held_protection_domains",
            ),
            (r#"resource="regions""#, "held_regions"),
            (r#"resource="registered_bytes""#, "held_registered_bytes"),
            (r#"resource="remote_regions""#, "held_remote_regions"),
            (r#"resource="completion_queues""#, "held_completion_queues"),
            (
                r#"resource="shared_receive_queues""#,
                "held_shared_receive_queues",
            ),
            (r#"resource="queue_pairs""#, "held_queue_pairs"),
            (r#"resource="ring_entries""#, "held_ring_entries"),
            (r#"resource="outstanding_work""#, "held_outstanding_work"),
            (r#"resource="listeners""#, "held_listeners"),
            (
                r#"resource="connection_requests""#,
                "held_connection_requests",
            ),
        ],
    ),
];

/// What a port (an AF_XDP socket, or an internal link) counts: counters `portN_NAME`, each sample with its port's number.
pub(super) const PORT: &[Family] = &[
    one(
        "rnic_port_frames_total",
        "Frames received from the link, handed to it, and given back by it.",
        &[
            (r#"direction="received""#, "received"),
            (r#"direction="sent""#, "transmitted"),
            (r#"direction="completed""#, "completed"),
        ],
    ),
    one(
        "rnic_port_bytes_total",
        "Bytes of the frames received from the link and handed to it.",
        &[
            (r#"direction="received""#, "received_bytes"),
            (r#"direction="sent""#, "transmitted_bytes"),
        ],
    ),
    one(
        "rnic_port_send_calls_total",
        "System calls that woke the kernel to send.",
        &[("", "send_calls")],
    ),
    one(
        "rnic_port_super_packets_total",
        "Packets received in several frames, packets sent with several segments in them, and these segments.",
        &[
            (r#"what="received""#, "chains_received"),
            (r#"what="sent""#, "super_packets_sent"),
            (r#"what="segments_sent""#, "super_packet_segments_sent"),
        ],
    ),
    one(
        "rnic_port_errors_total",
        "Problems at a port, by kind; `kernel_` comes from XDP_STATISTICS.",
        &[
            (r#"reason="send_busy""#, "send_busy"),
            (r#"reason="send_dropped""#, "send_dropped"),
            (r#"reason="transmit_ring_full""#, "transmit_ring_full"),
            (
                r#"reason="bad_receive_descriptor""#,
                "bad_receive_descriptors",
            ),
            (r#"reason="bad_receive_chain""#, "bad_receive_chains"),
            (r#"reason="bad_completion""#, "bad_completions"),
            (r#"reason="receive_no_frame""#, "receive_no_frame"),
            (r#"reason="kernel_rx_dropped""#, "kernel_rx_dropped"),
            (r#"reason="kernel_rx_ring_full""#, "kernel_rx_ring_full"),
            (
                r#"reason="kernel_fill_ring_empty""#,
                "kernel_fill_ring_empty",
            ),
            (r#"reason="kernel_rx_invalid""#, "kernel_rx_invalid"),
            (r#"reason="kernel_tx_invalid""#, "kernel_tx_invalid"),
            (r#"reason="kernel_tx_ring_empty""#, "kernel_tx_ring_empty"),
        ],
    ),
];

/// Counters `steering_NAME`: each is a sample with its name for a verdict.
pub(super) const STEERING: (&str, &str) = (
    "rnic_steering_frames_total",
    "Frames that the steering program saw, by its verdict.",
);

/// Counters `refused_SCOPE_LIMIT`: each is a sample with whose limit it was and which.
pub(super) const LIMITS: (&str, &str) = (
    "rnic_limit_refusals_total",
    "Requests refused because a limit was reached or `allowed_peers` does not have the peer, by whose limit or list it was and which.",
);
