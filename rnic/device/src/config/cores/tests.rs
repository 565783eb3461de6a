use std::fs;
use std::path::PathBuf;

use super::*;

/// A file system as the kernel shows one, for an interface that is not there.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("rnic-cores-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_interfaces_node_is_preferred_where_this_process_may_run() {
    let root = Root::new("node");
    let near = |allowed: &[u32]| near(&root.0, "eth9", allowed);
    assert_eq!(near(&[0, 1]), [0, 1], "it has no node");
    root.write("sys/class/net/eth9/device/numa_node", "1\n");
    root.write("sys/devices/system/node/node1/cpulist", "4-7,12\n");
    assert_eq!(near(&[0, 5, 6, 12]), [5, 6, 12]);
    assert_eq!(near(&[0, 1]), [0, 1], "none of it is allowed");
    root.write("sys/class/net/eth9/device/numa_node", "-1\n");
    assert_eq!(near(&[0, 5]), [0, 5]);
}

#[test]
fn the_interrupts_of_the_devices_queues_are_found() {
    let root = Root::new("irq");
    let interrupts = "           CPU0       CPU1\n\
        \x20 40:          1          0  PCI-MSIX-0000:03:00.0 0-edge  ice-eth9-misc\n\
        \x20 41:          1          0  PCI-MSIX-0000:03:00.0 1-edge  ice-eth9-TxRx-0\n\
        \x20 42:          1          0  PCI-MSIX-0000:03:00.0 2-edge  ice-eth9-TxRx-1\n\
        \x20 43:          1          0  PCI-MSIX-0000:03:00.0 3-edge  ice-eth9-TxRx-2\n\
        \x20 51:          1          0  PCI-MSIX-0000:04:00.0 1-edge  ice-eth8-TxRx-3\n\
        NMI:          0          0   Non-maskable interrupts\n";
    root.write("proc/interrupts", interrupts);
    for irq in 40..=43 {
        root.write(
            &format!("sys/class/net/eth9/device/msi_irqs/{irq}"),
            "msix\n",
        );
    }
    root.write("proc/irq/41/effective_affinity_list", "6\n");
    root.write("proc/irq/42/effective_affinity_list", "2-3\n");
    root.write("proc/irq/43/effective_affinity_list", "9\n");
    root.write("proc/irq/51/effective_affinity_list", "1\n");
    let found = irq::of_queues(&root.0, "eth9");
    let mut found: Vec<_> = found.into_iter().collect();
    found.sort_unstable();
    assert_eq!(found, [(0, 6), (2, 9)]);
}

#[test]
fn each_shard_gets_its_processor() {
    let list: Cores = "5,1-2".parse().unwrap();
    assert_eq!(
        list.of(3, "lo", &[0, 1, 2]).unwrap(),
        [Some(5), Some(1), Some(2)]
    );
    assert_eq!(Cores::Any.of(2, "lo", &[0, 1]).unwrap(), [None, None]);
    let allowed = allowed().unwrap();
    for core in Cores::Auto.of(4, "lo", &[0, 1, 2, 3]).unwrap() {
        assert!(allowed.contains(&core.unwrap()));
    }
    for text in ["any", "auto", "5,1,2"] {
        assert_eq!(text.parse::<Cores>().unwrap().to_string(), text);
    }
}

#[test]
fn a_thread_stays_where_it_is_put_until_it_is_let_go() {
    std::thread::spawn(|| {
        let before = allowed().unwrap();
        let last = before.last().copied();
        let stay = Stay::on(&[last, None]).unwrap();
        assert_eq!(allowed().unwrap(), [last.unwrap()]);
        drop(stay);
        assert_eq!(allowed().unwrap(), before);
        runs_on(last).unwrap();
        assert_eq!(allowed().unwrap(), [last.unwrap()]);
        let error = runs_on(Some(1000)).unwrap_err().to_string();
        assert!(error.contains("1000") && error.contains("lscpu"), "{error}");
        assert!(runs_on(Some(1 << 20)).is_err());
    })
    .join()
    .unwrap();
}
