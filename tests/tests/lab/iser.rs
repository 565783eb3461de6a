//! Debian's iSER target (tgt) and an iSER initiator (libiscsi) over the verbs, unmodified, between two daemons.

use std::time::Duration;

use rnic_tests::programs::Programs;
use rnic_tests::wait;

const LIMIT: Duration = Duration::from_secs(60);

const TARGET: &str = "iqn.2001-04.example:disk";

/// Not that of iSCSI over TCP, which tgtd listens at by the kernel's sockets as well.
const PORT: u16 = 3261;

const INITIATOR: &str = "iqn.2001-04.example:client";

const DISK_BYTES: usize = 1 << 20;

#[test]
fn an_iser_target_serves_an_initiator() {
    let programs = Programs::new("iser");
    let directory = programs.pair.lab.directory().display();
    let disk = format!("{directory}/disk");
    std::fs::write(&disk, vec![0; DISK_BYTES]).expect("the lab's directory is ours");
    let environment = format!("env TGT_IPC_SOCKET={directory}/tgt");
    let server = programs
        .on_b(&format!(
            "{environment} tgtd -f --iser port={PORT},pool_sz_mb=16"
        ))
        .spawn();
    let admin = |line: &str| {
        let words = format!("TGT_IPC_SOCKET={directory}/tgt");
        let namespace = &programs.pair.b.namespace;
        let command = namespace.command("env").arg(words).arg("tgtadm");
        command.args(["--lld", "iser"]).args(line.split(' ')).run()
    };
    wait::until("tgtd takes orders", LIMIT, || {
        let made = admin(&format!("--mode target --op new --tid 1 -T {TARGET}"));
        made.status.success().then_some(())
    });
    for line in [
        &format!("--mode logicalunit --op new --tid 1 --lun 1 -b {disk}"),
        "--mode target --op bind --tid 1 -I ALL",
        // An address alone is not enough: without the name tgtd says that there is no such target.
        &format!("--mode target --op bind --tid 1 -Q {INITIATOR}"),
    ] {
        let _ = admin(line).success();
    }
    let url = format!("iscsi://{}:{PORT}/{TARGET}/1?iser", programs.address());
    let asks = |line: &str| programs.on_a(line).limit(LIMIT).run().success();
    let size = asks(&format!("iscsi-readcapacity16 -s -i {INITIATOR} {url}"));
    assert_eq!(size.stdout.trim(), DISK_BYTES.to_string());
    // Reads of 64 KiB for two seconds: RDMA Writes of the target's.
    let read = asks(&format!("iscsi-perf -i {INITIATOR} -b 128 -t 2 {url}"));
    let placed = programs.pair.daemon_a.counter("bytes_placed");
    assert!(placed > DISK_BYTES as u64, "{placed}\n{read}");
    drop(server);
}
