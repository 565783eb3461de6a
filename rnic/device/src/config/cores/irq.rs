//! Where the interrupts of an interface's RX queues are handled.
//!
//! The kernel has no file that says which interrupt is a queue's. Drivers name them so that people see it, each in its
//! own way: from `/proc/interrupts` those are taken that are the device's, and whose names have one of these forms.

use std::collections::HashMap;
use std::path::Path;

use crate::config::number_list::NumberList;

/// What comes before a queue's number: ice, i40e, ixgbe and igc; ena; mlx5; virtio_net; igc and others with vectors for
/// RX alone.
const BEFORE: [&str; 5] = ["TxRx-", "Tx-Rx-", "mlx5_comp", "-input.", "-rx-"];

/// For each RX queue whose interrupt is known, and is handled by one processor, that processor.
pub(super) fn of_queues(root: &Path, interface: &str) -> HashMap<u32, u32> {
    let device = root.join(format!("sys/class/net/{interface}/device"));
    // A virtio device's interrupts are those of the PCI device that it is in.
    let places = [device.join("msi_irqs"), device.join("../msi_irqs")];
    let own: Vec<String> = places
        .iter()
        .filter_map(|place| std::fs::read_dir(place).ok())
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    let all = std::fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
    let mut found = HashMap::new();
    for line in all.lines() {
        let Some((irq, rest)) = line.split_once(':') else {
            continue;
        };
        let irq = irq.trim();
        let action = rest.split_whitespace().next_back().unwrap_or_default();
        if let Some(queue) = queue(action).filter(|_| own.iter().any(|own| own == irq))
            && let Some(core) = handled_by(root, irq)
        {
            found.entry(queue).or_insert(core);
        }
    }
    found
}

/// The RX queue that an interrupt of this name is for.
fn queue(action: &str) -> Option<u32> {
    let after = BEFORE
        .iter()
        .find_map(|before| Some(action.split_once(before)?.1))?;
    let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    after[..digits].parse().ok()
}

/// The one processor that handles an interrupt.
fn handled_by(root: &Path, irq: &str) -> Option<u32> {
    let file = root.join(format!("proc/irq/{irq}/effective_affinity_list"));
    let text = std::fs::read_to_string(file).ok()?;
    match text.trim().parse::<NumberList>().ok()?.0[..] {
        [core] => Some(core),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_in_the_interrupt_s_name() {
        for (action, wanted) in [
            ("ice-eth0-TxRx-3", Some(3)),
            ("i40e-enp3s0f0-TxRx-12", Some(12)),
            ("eth0-TxRx-0", Some(0)),
            ("ens5-Tx-Rx-7", Some(7)),
            ("mlx5_comp5@pci:0000:03:00.0", Some(5)),
            ("virtio1-input.2", Some(2)),
            ("eth0-rx-1", Some(1)),
            ("virtio1-output.2", None),
            ("virtio1-config", None),
            ("mlx5_async0@pci:0000:03:00.0", None),
            ("eth0", None),
            ("", None),
        ] {
            assert_eq!(queue(action), wanted, "{action}");
        }
    }
}
