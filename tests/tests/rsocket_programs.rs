//! Debian's programs of rsockets, unmodified, between two daemons; and programs of ordinary sockets that
//! librspreload.so puts on rsockets.

use rnic_tests::programs::Programs;

#[test]
fn rstream_checks_every_byte_blocking_and_not_and_with_poll() {
    let programs = Programs::new("rsock-rstream");
    for options in ["-T b -T v", "-T n -T v", "-T a -T v", "-T r -T b -T v"] {
        let client = format!(
            "rstream -s {} {options} -S 30000 -C 100 -I 5",
            programs.address()
        );
        let server = format!("rstream {options} -S 30000 -C 100 -I 5");
        let both = programs.run(&server, &client).success();
        assert!(both.client.stdout.contains("custom"), "{}", both.client);
        assert!(!both.client.stderr.contains("rsend"), "{}", both.client);
    }
}
