//! Compiles the XDP programs with clang.

use std::path::PathBuf;
use std::process::Command;

const PROGRAMS: [&str; 2] = ["steer", "tap"];

fn main() {
    println!("cargo::rerun-if-env-changed=CLANG");
    println!("cargo::rerun-if-changed=src/headers.bpf.h");
    println!("cargo::rerun-if-changed=src/icmp.bpf.h");
    println!("cargo::rerun-if-changed=src/flood.bpf.h");
    for program in PROGRAMS {
        compile(program);
    }
}

fn compile(program: &str) {
    let source = format!("src/{program}.bpf.c");
    println!("cargo::rerun-if-changed={source}");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let result = Command::new(&clang)
        .args([
            "-target", "bpf", "-g", "-O2", "-mcpu=v3", "-Wall", "-Wextra", "-Werror",
        ])
        // Debian keeps asm/types.h in the directory of its architecture.
        .arg(format!("-I/usr/include/{arch}-linux-gnu"))
        .args(["-c", &source, "-o"])
        .arg(out.join(format!("{program}.bpf.o")))
        .output();
    match result {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!("{}", String::from_utf8_lossy(&output.stderr));
            eprintln!(
                "{clang} could not compile ebpf/{source}: it needs clang 11 or later with the bpf \
                 target, and the kernel's headers: apt-get install clang linux-libc-dev"
            );
            std::process::exit(1);
        }
        Err(error) => {
            eprintln!(
                "can't run {clang} ({error}), which compiles the XDP programs: install clang \
                 (apt-get install clang), or name it in the environment variable CLANG"
            );
            std::process::exit(1);
        }
    }
}
