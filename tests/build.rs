//! Compiles the flood's program with clang, as `ebpf/build.rs` does the steering program.

use std::path::PathBuf;
use std::process::Command;

const SOURCE: &str = "src/bin/flood/flood.bpf.c";

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed={SOURCE}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let status = Command::new(&clang)
        .args([
            "-target", "bpf", "-g", "-O2", "-mcpu=v3", "-Wall", "-Werror",
        ])
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .args(["-c", SOURCE, "-o"])
        .arg(out.join("flood.bpf.o"))
        .status();
    if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
        eprintln!("{clang} could not compile tests/{SOURCE}: {status:?}");
        std::process::exit(1);
    }
}
