//! A C program of our own, built with the headers' inline functions, checks what the verbs promise: immediate
//! data, inline data, invalidation, attributes, what is still used, and how what is not there fails.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rnic_tests::programs::Programs;

#[test]
fn the_verbs_keep_what_their_manual_pages_promise() {
    let programs = Programs::new("verbs-semantics");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("verbs/semantics.c");
    let program = programs.pair.lab.directory().join("semantics");
    let built = Command::new("gcc")
        .args(["-Wall", "-Werror"])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .args(["-libverbs", "-lrdmacm"])
        .output();
    let built = built.unwrap_or_else(|error| panic!("can't run gcc (scripts/setup): {error}"));
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let end = |role: &str| format!("env {} {role} {}", program.display(), programs.address());
    let server = programs.on_b(&end("server")).spawn();
    programs.wait_for_listener();
    let client = programs.on_a(&end("client")).run();
    let server = server.finish(Duration::from_secs(30));
    assert!(
        client.status.success() && server.status.success(),
        "{client}\n{server}"
    );
}
