//! What the fuzz targets do with bytes. The targets of `fuzz/` call it, and so does an ordinary
//! test, with random bytes and with the corpus.

mod ecn;
mod input;
mod model;
pub mod parsers;
mod peer;
pub mod stateful;

#[path = "../../harness/buffer.rs"]
mod buffer;
#[path = "../../harness/seen.rs"]
mod seen;

/// Says what happens, when `RNIC_TEST_TRACE` is set.
fn trace(what: impl FnOnce() -> String) {
    static WANTED: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| std::env::var_os("RNIC_TEST_TRACE").is_some());
    if *WANTED {
        eprintln!("{}", what());
    }
}
